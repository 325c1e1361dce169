package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/dir"
	"github.com/shirou/gopsutil/v4/process"
)

func openFolder(root string) (object.Store, error) { return dir.New(dir.Config{Root: root}) }

// agentsIn finds the agents that the process provider runs for a folder, by the
// pid files in it. A pid that is another program's by now is none of them.
func agentsIn(ctx context.Context, root string) []*process.Process {
	var out []*process.Process
	// What can't be read has no agent, yet or any more.
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != "pid" {
			return nil //nolint:nilerr // as above
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		first, _, _ := strings.Cut(string(body), "\n")
		pid, err := strconv.Atoi(first)
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		p, err := process.NewProcessWithContext(ctx, int32(pid))
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		if name, err := p.NameWithContext(ctx); err == nil && name == agentBinary {
			out = append(out, p)
		}
		return nil
	})
	return out
}

// endAgents ends them; their server is gone, so nobody replaces them.
func endAgents(ctx context.Context, root string) {
	for _, p := range agentsIn(context.WithoutCancel(ctx), root) {
		// It may be gone already.
		_ = p.KillWithContext(context.WithoutCancel(ctx))
	}
}
