package release

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// grace is what a tool and all that it started have to end once they are told to.
const grace = 10 * time.Second

// tool starts a program of the module file .ci/tools/{name}.mod with the variables
// env beside what it inherits, and returns what it printed. These variables are not
// those with which the tool itself is built.
func (b Builder) tool(ctx context.Context, name string, env []string, args ...string) (string, error) {
	path, err := b.run(ctx, nil, "go", "tool", "-n", "-modfile="+filepath.Join(".ci", "tools", name+".mod"), name)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	return b.run(ctx, env, path, args...)
}

// run starts a program in the checkout, and returns what it printed. What it says on
// its standard error goes to Output as it says it, and the last line into an error too.
func (b Builder) run(ctx context.Context, env []string, program string, args ...string) (string, error) {
	inherited, err := b.environment(ctx)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = b.Source
	cmd.Env = append(inherited, env...)
	var printed, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, io.MultiWriter(b.Output, &said)
	// A build is a tree of processes: all of it ends together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(append([]string{program}, args...), " "), err, lastLine(said.String()))
	}
	return strings.TrimSpace(printed.String()), nil
}

// lastLine is the last line of a text that is not empty: the reason, by custom.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
