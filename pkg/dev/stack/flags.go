package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// Flags are what a person says on the command line; paths may be relative.
type Flags struct {
	Bin      string
	Examples string
	Temp     string
	Provider string
	Standby  bool
	Life     time.Duration // of client certificates; 0: the server's default
}

func (f Flags) config(ctx context.Context, out io.Writer) (Config, error) {
	cfg := Config{
		Bin: f.Bin, Examples: f.Examples, Temp: f.Temp, Provider: f.Provider, Standby: f.Standby, Life: f.Life,
		Out: out, Logger: slog.New(slog.NewTextHandler(out, nil)),
	}
	for _, p := range []*string{&cfg.Bin, &cfg.Examples, &cfg.Temp} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return Config{}, err
		}
		*p = abs
	}
	switch cfg.Provider {
	case "":
		cfg.Provider = "process"
		if engineAnswers(ctx) {
			cfg.Provider = "docker"
		}
	case "docker", "process":
	default:
		return Config{}, fmt.Errorf("provider (DEV_PROVIDER): %q is not valid: want docker or process", cfg.Provider)
	}
	cfg.Host = "127.0.0.1"
	if cfg.Provider == "docker" {
		// A container can't reach the host's loopback address.
		cfg.Host = ""
	}
	return cfg, nil
}

// Run runs the stack in the foreground until ctx ends.
func (f Flags) Run(ctx context.Context, out io.Writer) error {
	cfg, err := f.config(ctx, out)
	if err != nil {
		return err
	}
	if cfg.Provider == "docker" {
		if err := buildImage(ctx, cfg); err != nil {
			return err
		}
	}
	s, err := New(cfg)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// Up runs the stack in the background and returns when it is ready, or failed.
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
	for {
		select {
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-died //nolint:errcheck // the supervisor reports in its log
			return ctx.Err()
		case err := <-died:
			tail, _ := os.ReadFile(logFile)
			return fmt.Errorf("the stack did not come up (%s); the end of %s:\n%s", ended(err), logFile, lastLines(tail, 15))
		case <-ticker.C:
			r, err := client.Status(ctx)
			if err == nil && r.Ready {
				fmt.Fprintln(out, (&Stack{cfg: cfg}).summary())
				return cmd.Process.Release()
			}
		}
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
		"--provider", cfg.Provider, fmt.Sprintf("--standby=%t", cfg.Standby), "--client-certificate-life", cfg.Life.String())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	return cmd, nil
}

// Down stops the stack and, whether or not a supervisor was there to do it,
// makes sure that nothing of it runs.
func (f Flags) Down(ctx context.Context) error {
	cfg, err := f.config(ctx, io.Discard)
	if err != nil {
		return err
	}
	client := NewClient(cfg.Temp)
	if r, err := client.Status(ctx); err == nil {
		defer awaitExit(r.Supervisor)
	}
	if err := client.Shutdown(ctx); err != nil && !errors.Is(err, ErrNotRunning) {
		return err
	}
	for {
		unlock, err := lock(cfg.Temp)
		if errors.Is(err, os.ErrNotExist) {
			return nil // never started
		}
		if err == nil {
			defer unlock()
			return Clean(ctx, cfg)
		}
		if retry.Wait(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}

// awaitExit waits until a process that is about to end has ended, so that whoever
// looks next does not find it. One that nobody reaps is not waited for long.
func awaitExit(pid int) {
	for range exitLooks {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		time.Sleep(exitLook) // it is no child of this process, so there is no event to wait for
	}
}

const (
	exitLook  = 10 * time.Millisecond
	exitLooks = 200
)

// Status prints what runs, as a table.
func (f Flags) Status(ctx context.Context, out io.Writer) error {
	r, err := NewClient(f.Temp).Status(ctx)
	if err != nil {
		return err
	}
	if os.Getenv("DEV_OUTPUT") == "json" {
		return json.NewEncoder(out).Encode(r)
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "COMPONENT\tPID\tHEALTHY\tRESTARTS\tDETAIL\n")
	for _, c := range r.Components {
		fmt.Fprintf(w, "%s\t%d\t%t\t%d\t%s\n", c.Name, c.PID, c.Healthy, c.Restarts, c.Detail)
	}
	return w.Flush()
}

// Guard runs the guard until the supervisor is gone.
func (f Flags) Guard(ctx context.Context, pipe io.Reader) error {
	cfg, err := f.config(ctx, io.Discard)
	if err != nil {
		return err
	}
	return Guard(ctx, cfg, pipe)
}

func lastLines(b []byte, n int) string {
	at := len(b)
	for at > 0 {
		if b[at-1] == '\n' && at != len(b) {
			if n--; n == 0 {
				break
			}
		}
		at--
	}
	return string(b[at:])
}
