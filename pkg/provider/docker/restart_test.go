package docker_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
	"github.com/nstance/nstance/pkg/retry"
)

// ownEngine is an engine of the test's own, which may be restarted.
type ownEngine struct {
	dir, host string
	api       *client.Client
	process   *exec.Cmd
}

// newOwnEngine starts one, which makes no network and no rule of a firewall.
func newOwnEngine(t *testing.T) *ownEngine {
	t.Helper()
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
		_ = exec.Command("umount", dir+"/data").Run() // left mounted by an engine that was killed before
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(dir+"/daemon.json", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.start(t)
	return e
}

func (e *ownEngine) start(t *testing.T) {
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
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err = e.api.Ping(t.Context()); err == nil {
			return
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(e.dir + "/log")
			t.Fatalf("the test's own engine does not answer: %v\n%s", err, log[max(0, len(log)-4000):])
		}
		_ = retry.Wait(t.Context(), 50*time.Millisecond)
	}
}

// end ends the engine, and waits for it.
func (e *ownEngine) end(t *testing.T, with syscall.Signal) {
	t.Helper()
	if err := e.process.Process.Signal(with); err != nil {
		t.Error(err)
	}
	_ = e.process.Wait() // what it was ended by
	e.process = nil
	// Killed, it takes its containerd along, whose pid the next engine would trust for
	// as long as nobody has reaped it. What should end by itself may have removed it.
	if err := os.Remove(e.dir + "/run/containerd/containerd.pid"); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestEngineRestart: an engine that is stopped, or killed, ends all its containers. Then
// each of them is told of, with a reason, new ones can be made beside them, and all can
// be deleted without a trace.
func TestEngineRestart(t *testing.T) {
	shared := needEngine(t) // it has the test's agent
	if testing.Short() {
		t.Skip("SKIPPED, no engine is restarted in short tests")
	}
	t.Parallel()
	e := newOwnEngine(t)
	binary := filepath.Join(e.dir, "agent")
	if err := os.WriteFile(binary, shared.program, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := docker.BuildAgentImage(t.Context(), e.host, binary, "agent:test"); err != nil {
		t.Fatal(err)
	}
	scope := provider.Scope{ClusterID: "restart", Shard: "s"}
	cfg, err := docker.Default(scope, slog.New(slog.DiscardHandler)).WithOptions(map[string]any{
		"host": e.host, "image": "agent:test", "network": "none",
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := docker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for name, with := range map[string]syscall.Signal{"stopped": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) { testRestart(t, e, p, scope, with) })
	}
}

func testRestart(t *testing.T, e *ownEngine, p *docker.Provider, scope provider.Scope, with syscall.Signal) {
	const machines = 5
	specs, refs := make([]provider.Spec, machines), make([]provider.Ref, machines)
	for n := range specs {
		specs[n] = newSpec(t, scope, nil)
		vm, err := p.Create(t.Context(), specs[n])
		if err != nil {
			t.Fatal(err)
		}
		refs[n] = vm.Ref()
	}
	watched := make(chan error, 1)
	go func() { watched <- p.Watch(t.Context(), func(provider.Event) {}) }()
	e.end(t, with)
	if err := <-watched; err == nil || provider.Definite(err) {
		t.Errorf("the watch ends with %v", err)
	}
	_, createErr := p.Create(t.Context(), newSpec(t, scope, nil))
	_, getErr := provider.GetOne(t.Context(), p, refs[0])
	for what, err := range map[string]error{"create": createErr, "get": getErr, "delete": provider.DeleteOne(t.Context(), p, refs[0])} {
		if err == nil || provider.Definite(err) || errors.Is(err, provider.ErrNotFound) {
			t.Errorf("%s without an engine: %v", what, err)
		}
	}
	e.start(t)
	told := toldDead(t, p, machines)
	for n, a := range p.Get(t.Context(), refs) {
		if a.Err != nil || a.VM.State != provider.StateStopped || !strings.Contains(a.VM.Reason, "exit code ") || told[a.VM.ID] == "" {
			t.Errorf("after the restart: %+v, %v; told %q", a.VM, a.Err, told[refs[n].ID])
		}
	}
	again, err := p.Create(t.Context(), specs[0])
	if err != nil || again.ProviderID != refs[0].ProviderID || again.State != provider.StateStopped {
		t.Errorf("the create of a dead one, repeated: %+v, %v", again, err)
	}
	successor, err := p.Create(t.Context(), newSpec(t, scope, nil))
	if err != nil || successor.State != provider.StateRunning {
		t.Errorf("a successor: %+v, %v", successor, err)
	}
	for n, err := range p.Delete(t.Context(), append(refs, successor.Ref())) {
		if err != nil {
			t.Errorf("delete %d: %v", n, err)
		}
	}
	containers, err := e.api.ContainerList(t.Context(), container.ListOptions{All: true})
	if err != nil || len(containers) != 0 {
		t.Errorf("containers left: %+v, %v", containers, err)
	}
	volumes, err := e.api.VolumeList(t.Context(), volume.ListOptions{})
	if err != nil || len(volumes.Volumes) != 0 {
		t.Errorf("volumes left: %+v, %v", volumes.Volumes, err)
	}
}

// toldDead watches until it heard of so many deaths, and returns why they died.
func toldDead(t *testing.T, p *docker.Provider, want int) map[fleet.InstanceID]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	told := map[fleet.InstanceID]string{}
	err := p.Watch(ctx, func(e provider.Event) {
		if e.VM.State == provider.StateStopped {
			told[e.VM.ID] = e.VM.Reason
		}
		if len(told) == want {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the watch after the restart: %v, told %v", err, told)
	}
	return told
}
