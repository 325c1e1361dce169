package stack

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Up starts the stack in the background and returns when it is ready, or has failed.
func (f Flags) Up(ctx context.Context, out io.Writer) error {
	cfg, err := f.config(ctx, out)
	if err != nil {
		return err
	}
	client := NewClient(cfg.Temp)
	if r, err := client.Status(ctx); err == nil {
		return fmt.Errorf("a development stack runs already (supervisor %d): stop it with `make dev-down`", r.Supervisor)
	}
	logFile := filepath.Join(cfg.Temp, "logs", "dev.log")
	cmd, err := f.detach(ctx, cfg, logFile)
	if err != nil {
		return err
	}
	died := make(chan error, 1)
	go func() { died <- cmd.Wait() }()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	printed := progress{cfg: cfg, out: out, log: logFile}
	for {
		select {
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-died //nolint:errcheck // the supervisor reports in its log
			return ctx.Err()
		case err := <-died:
			tail, _ := os.ReadFile(logFile)
			return fmt.Errorf("the stack did not come up (%s); the end of %s:\n%s", exitReason(err), logFile, lastLines(tail, 15))
		case <-ticker.C:
			r, err := client.Status(ctx)
			if err != nil || !r.Ready {
				continue
			}
			if done, err := printed.report(r); err != nil {
				return err
			} else if done {
				return cmd.Process.Release()
			}
		}
	}
}

// progress prints the state of a stack that starts in the background, each part once.
type progress struct {
	cfg    Config
	out    io.Writer
	log    string
	shards bool
}

// report prints what is new, and returns whether the stack is up. An error concerns Kubernetes
// only.
func (p *progress) report(r Report) (done bool, err error) {
	s := &Stack{cfg: p.cfg}
	if !p.shards {
		p.shards = true
		fmt.Fprintln(p.out, s.summary(r.Short))
		if r.Kubernetes == kubeStarting {
			fmt.Fprintf(p.out, "Kubernetes is on its way (see %s). The first time its programs are built: about 10 minutes, 600 MB.\n", p.log)
		}
	}
	switch r.Kubernetes {
	case "":
		return true, nil
	case kubeStarting:
		return false, nil
	case kubeUp:
		fmt.Fprintln(p.out, s.kubeSummary())
		return true, nil
	default:
		return false, fmt.Errorf("the shards are up, and Kubernetes is not: %s (more in %s)", r.Kubernetes, p.log)
	}
}

// detach starts `dev run` in a session of its own.
func (f Flags) detach(ctx context.Context, cfg Config, logFile string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(logFile), 0o755); err != nil {
		return nil, fmt.Errorf("make the log folder: %w", err)
	}
	log, err := os.Create(logFile)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	defer log.Close()
	// It outlives this command.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, "run", "--bin", cfg.Bin, "--examples", cfg.Examples, "--temp", cfg.Temp,
		"--provider", cfg.Provider, fmt.Sprintf("--standby=%t", cfg.Standby), "--port-offset", strconv.Itoa(cfg.PortOffset),
		"--client-certificate-life", cfg.Life.String(),
		"--kubeconfig", cfg.Kubeconfig, fmt.Sprintf("--kubernetes=%t", cfg.Kubernetes), "--repository", cfg.Repository, "--plane", cfg.Plane,
		"--watch", cfg.Watch)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	return cmd, nil
}
