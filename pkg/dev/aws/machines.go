package aws

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awstest"
	"github.com/nstance/nstance/pkg/retry"
)

// pollInterval is the interval at which the cloud's machines are listed.
const pollInterval = 100 * time.Millisecond

// machinePath is the PATH of a machine's programs.
const machinePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// process is a machine's first process. It leads a process group, so that all of them can be
// killed.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// runMachines runs the userdata of each running machine, and kills it when the machine ends.
func (s *Server) runMachines(ctx context.Context) {
	running := map[string]*process{}
	for {
		machines := s.cfg.Cloud.Machines()
		for _, m := range machines {
			if _, known := running[m.ID]; known || m.State != "running" {
				continue
			}
			p, err := s.boot(ctx, m)
			if err != nil {
				s.cfg.Logger.Error("machine does not boot", slog.String("machine", m.ID), slog.Any("error", err))
			}
			running[m.ID] = p // nil too: it is not retried
		}
		for id, p := range running {
			on := slices.ContainsFunc(machines, func(m awstest.Machine) bool { return m.ID == id && m.State == "running" })
			if !on && p != nil {
				p.kill()
				running[id] = nil
			}
		}
		if retry.Wait(ctx, pollInterval) != nil {
			break
		}
	}
	for _, p := range running {
		if p != nil {
			p.kill()
		}
	}
}

// boot runs the userdata of a machine if it is a script, as cloud-init does.
func (s *Server) boot(ctx context.Context, m awstest.Machine) (*process, error) {
	if !bytes.HasPrefix(m.UserData, []byte("#!")) {
		return nil, nil
	}
	folder, err := filepath.Abs(filepath.Join(s.cfg.Run, m.ID))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	script := filepath.Join(folder, "userdata")
	if err := os.WriteFile(script, m.UserData, 0o700); err != nil { //nolint:gosec // it is run
		return nil, err
	}
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	metadata, err := s.MetadataURL(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(script) //nolint:noctx // a machine ends by its own state
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, log, log
	// Nothing is inherited from this process: its environment has the keys, for example.
	cmd.Env = []string{
		"PATH=" + machinePath, "HOME=" + folder, "AWS_EC2_METADATA_SERVICE_ENDPOINT=" + metadata, "MACHINE_IPV4=" + s.primaryAddress(m.ID),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run userdata: %w", err)
	}
	p := &process{cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ends is up to the machine
		close(p.done)
	}()
	return p, nil
}

// primaryAddress returns a machine's first address, which its process can't find out: it sees this
// host's interfaces.
func (s *Server) primaryAddress(id string) string {
	for _, i := range s.cfg.Cloud.Interfaces() {
		if i.Instance == id && i.Index == 0 && len(i.Addresses) > 0 {
			return i.Addresses[0].String()
		}
	}
	return ""
}

// kill kills a machine's process group, and waits for its first process.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended already
	<-p.done
}
