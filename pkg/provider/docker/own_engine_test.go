package docker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
)

// ownEngine is an engine of one test, which may restart it.
type ownEngine struct {
	dir, host string
	api       *client.Client
	process   *exec.Cmd     // nil: not running
	exited    chan struct{} // closed when the process has exited
}

// newOwnEngine starts an engine with the test's agent as its image agent:test. It creates no
// network and no firewall rules. disk limits its storage, such as 64m; empty: unlimited.
func newOwnEngine(t *testing.T, disk string) *ownEngine {
	t.Helper()
	shared := needEngine(t) // for the test's agent
	if testing.Short() {
		t.Skip("SKIPPED, no engine is started in short tests")
	}
	for _, program := range []string{"dockerd", "unshare"} {
		if _, err := exec.LookPath(program); err != nil || os.Getuid() != 0 {
			t.Skipf("SKIPPED, no engine is restarted: it requires %s, and root", program)
		}
	}
	// A short path, because the engine creates sockets in it.
	dir, err := os.MkdirTemp("/tmp", "dockerd-")
	if err != nil {
		t.Fatal(err)
	}
	e := &ownEngine{dir: dir, host: "unix://" + dir + "/docker.sock"}
	e.api, err = client.NewClientWithOpts(client.WithHost(e.host), client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.api.Close()
		if e.process != nil {
			e.stop(t, syscall.SIGTERM)
		}
		for exec.Command("umount", dir+"/data").Run() == nil { // a killed engine may leave several mounts
			t.Log("unmounted", dir+"/data")
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(dir+"/daemon.json", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/data", 0o711); err != nil {
		t.Fatal(err)
	}
	if disk != "" {
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+disk, "tmpfs", dir+"/data").CombinedOutput(); err != nil {
			t.Skipf("SKIPPED, no disk can be limited: %v: %s", err, out)
		}
	}
	if err := e.start(t); err != nil {
		t.Skip("SKIPPED, no second engine starts here: ", err)
	}
	binary := filepath.Join(e.dir, "agent")
	if err := os.WriteFile(binary, shared.program, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := docker.BuildAgentImage(t.Context(), e.host, binary, "agent:test"); err != nil {
		t.Fatal(err)
	}
	return e
}

// open opens a provider on this engine.
func (e *ownEngine) open(t *testing.T, scope provider.Scope) *docker.Provider {
	t.Helper()
	return open(t, engine{}, scope, map[string]any{"host": e.host, "image": "agent:test", "network": "none"})
}

// wantEmpty checks that the engine has no containers and volumes.
func (e *ownEngine) wantEmpty(t *testing.T) {
	t.Helper()
	containers, err := e.api.ContainerList(t.Context(), container.ListOptions{All: true})
	if err != nil || len(containers) != 0 {
		t.Errorf("containers left: %+v, %v", containers, err)
	}
	volumes, err := e.api.VolumeList(t.Context(), volume.ListOptions{})
	if err != nil || len(volumes.Volumes) != 0 {
		t.Errorf("volumes left: %+v, %v", volumes.Volumes, err)
	}
}

// start starts the engine, and waits until it responds. The error has the end of its log.
func (e *ownEngine) start(t *testing.T) error {
	t.Helper()
	out, err := os.OpenFile(e.dir+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	// In a network namespace of its own: an engine without a bridge removes docker0, which belongs
	// to the other engine.
	e.process = exec.Command("unshare", "--net", "dockerd", "--config-file", e.dir+"/daemon.json",
		"--data-root", e.dir+"/data", "--exec-root", e.dir+"/run", "-H", e.host, "--pidfile", e.dir+"/pid",
		"--bridge=none", "--iptables=false", "--ip-forward=false", "--storage-driver=vfs",
		"--containerd-namespace="+filepath.Base(e.dir), "--containerd-plugins-namespace="+filepath.Base(e.dir)+"-plugins")
	e.process.Stdout, e.process.Stderr = out, out
	e.process.Env = append(os.Environ(), "TMPDIR="+e.dir)
	if err := e.process.Start(); err != nil {
		e.process = nil
		return err
	}
	e.exited = make(chan struct{})
	go func(process *exec.Cmd, exited chan struct{}) {
		_ = process.Wait() // the reason is in its log
		close(exited)
	}(e.process, e.exited)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if _, err = e.api.Ping(ctx); err == nil {
			return nil
		}
		select {
		case <-e.exited:
			e.process = nil
		case <-time.After(50 * time.Millisecond):
		}
		if e.process == nil || ctx.Err() != nil {
			text, _ := os.ReadFile(e.dir + "/log")
			return fmt.Errorf("%w: %s", err, text[max(0, len(text)-2000):])
		}
	}
}

// stop sends a signal to the engine, and waits until it has exited.
func (e *ownEngine) stop(t *testing.T, with syscall.Signal) {
	t.Helper()
	if err := e.process.Process.Signal(with); err != nil {
		t.Error(err)
	}
	<-e.exited
	e.process = nil
	// A killed engine also ends its containerd. The next engine would trust the recorded PID until
	// that process is reaped. After a graceful stop the file may be gone.
	if err := os.Remove(e.dir + "/run/containerd/containerd.pid"); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
