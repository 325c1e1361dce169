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

// agentsIn finds the agents that the process provider runs in a folder, by their pid files. A pid
// that another program has by now does not count.
func agentsIn(ctx context.Context, root string) []*process.Process {
	var out []*process.Process
	// A missing file means that the agent has not started, or has ended.
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

// endAgents kills them; without a server they are not replaced.
func endAgents(ctx context.Context, root string) {
	for _, p := range agentsIn(context.WithoutCancel(ctx), root) {
		// It may have ended already.
		_ = p.KillWithContext(context.WithoutCancel(ctx))
	}
}
