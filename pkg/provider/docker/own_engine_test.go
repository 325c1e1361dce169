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

// ownEngine is an engine of the test's own, which may be restarted.
type ownEngine struct {
	dir, host string
	api       *client.Client
	process   *exec.Cmd     // nil: none runs
	exited    chan struct{} // closed when it has ended
}

// newOwnEngine starts one with the test's agent as its image agent:test. It makes no
// network and no rule of a firewall. disk bounds what it may store, such as 64m; empty:
// nothing does.
func newOwnEngine(t *testing.T, disk string) *ownEngine {
	t.Helper()
	shared := needEngine(t) // it has the test's agent
	if testing.Short() {
		t.Skip("SKIPPED, no engine is started in short tests")
	}
	for _, program := range []string{"dockerd", "unshare"} {
		if _, err := exec.LookPath(program); err != nil || os.Getuid() != 0 {
			t.Skipf("SKIPPED, no engine is restarted: that takes %s, and root", program)
		}
	}
	// A short path, for the engine makes sockets in it.
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
			e.end(t, syscall.SIGTERM)
		}
		for exec.Command("umount", dir+"/data").Run() == nil { // an engine that was killed leaves one more, or several
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
			t.Skipf("SKIPPED, no disk fills up: %v: %s", err, out)
		}
	}
	if err := e.start(t); err != nil {
		t.Skip("SKIPPED, no engine of the test's own starts here: ", err)
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

// open opens a provider on it.
func (e *ownEngine) open(t *testing.T, scope provider.Scope) *docker.Provider {
	t.Helper()
	return open(t, engine{}, scope, map[string]any{"host": e.host, "image": "agent:test", "network": "none"})
}

// empty reports what it holds besides the image.
func (e *ownEngine) empty(t *testing.T) {
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

// start starts it, and waits until it answers. The error has the end of its log.
func (e *ownEngine) start(t *testing.T) error {
	t.Helper()
	out, err := os.OpenFile(e.dir+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	// On a network of its own: an engine without a bridge removes docker0, which is
	// the other engine's.
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
		_ = process.Wait() // why it ended is in its log
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

// end ends the engine, and waits for it.
func (e *ownEngine) end(t *testing.T, with syscall.Signal) {
	t.Helper()
	if err := e.process.Process.Signal(with); err != nil {
		t.Error(err)
	}
	<-e.exited
	e.process = nil
	// Killed, it takes its containerd along, whose pid the next engine would trust for
	// as long as nobody has reaped it. What should end by itself may have removed it.
	if err := os.Remove(e.dir + "/run/containerd/containerd.pid"); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
