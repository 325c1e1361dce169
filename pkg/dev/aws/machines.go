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
	"strings"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
	"github.com/nstance/nstance/pkg/retry"
)

// look is how often the cloud's machines are looked at.
const look = 100 * time.Millisecond

// process is what runs for a machine. It has a group of its own, so that all of it can
// be ended.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// runMachines runs the userdata of each machine that runs, and ends it with the machine.
func (s *Stand) runMachines(ctx context.Context) {
	running := map[string]*process{}
	for {
		machines := s.cfg.Cloud.Machines()
		for _, m := range machines {
			if _, known := running[m.ID]; known || m.State != "running" {
				continue
			}
			p, err := s.start(ctx, m)
			if err != nil {
				s.cfg.Logger.Error("machine does not boot", slog.String("machine", m.ID), slog.Any("error", err))
			}
			running[m.ID] = p // nil too: it is not tried again
		}
		for id, p := range running {
			on := slices.ContainsFunc(machines, func(m awsfake.Machine) bool { return m.ID == id && m.State == "running" })
			if !on && p != nil {
				p.kill()
				running[id] = nil
			}
		}
		if retry.Wait(ctx, look) != nil {
			break
		}
	}
	for _, p := range running {
		if p != nil {
			p.kill()
		}
	}
}

// start boots a machine: userdata that is a script runs, as cloud-init has it.
func (s *Stand) start(ctx context.Context, m awsfake.Machine) (*process, error) {
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
	// Nothing of this process's own settings is a machine's.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") || strings.HasPrefix(v, "NSTANCE_") })
	cmd.Env = append(cmd.Env, "HOME="+folder, "AWS_EC2_METADATA_SERVICE_ENDPOINT="+metadata, "MACHINE_IPV4="+s.address(m.ID))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run userdata: %w", err)
	}
	p := &process{cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ends is the machine's business
		close(p.done)
	}()
	return p, nil
}

// address is the first one of a machine, which can't find it out: its process sees the
// interfaces of this host.
func (s *Stand) address(id string) string {
	for _, i := range s.cfg.Cloud.Interfaces() {
		if i.Instance == id && i.Index == 0 && len(i.Addresses) > 0 {
			return i.Addresses[0].String()
		}
	}
	return ""
}

// kill ends all of a machine, and waits for its first process.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	<-p.done
}
