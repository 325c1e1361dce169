package planetest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a process of the control plane besides the API server, with its own log file.
type process struct {
	name   string
	health string // URL that answers 200 when ready
	cmd    *exec.Cmd
	log    string
	ended  chan struct{} // closed when err is set
	err    error
}

// command prepares a process of the control plane's folder; logs is its working directory.
func command(folder, logs, name, health string, args ...string) *process {
	cmd := exec.Command(filepath.Join(folder, name), args...) //nolint:noctx // it ends with the last test, not with one
	cmd.Dir = logs
	cmd.Env = append(os.Environ(), "HOME="+logs) // where kwok looks for more configuration
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return &process{name: name, health: health, cmd: cmd, log: filepath.Join(logs, name+".log"), ended: make(chan struct{})}
}

// start starts the process and waits until it is ready.
func (p *process) start(ctx context.Context) error {
	out, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	if err := p.ready(ctx); err != nil {
		return fmt.Errorf("%s: %w; the end of %s:\n%s", p.name, err, p.log, p.tail())
	}
	return nil
}

func (p *process) ready(ctx context.Context) error {
	insecure := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // its certificate is generated at start, and this is loopback
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: insecure, DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.health, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(req)
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(answer.Status)
		}
		select {
		case <-p.ended:
			return fmt.Errorf("it exited: %w", p.err)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", err)
		case <-time.After(pause):
		}
	}
}

// stop stops the process and its children.
func (p *process) stop() error {
	if p.cmd.Process == nil {
		return nil
	}
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := syscall.Kill(-p.cmd.Process.Pid, how); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop %s: %w", p.name, err)
		}
		select {
		case <-p.ended:
			return nil
		case <-time.After(stopTimeout):
		}
	}
	return fmt.Errorf("stop %s: it did not exit", p.name)
}

// tail returns the end of the process's log.
func (p *process) tail() string {
	said, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
