package docker_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
)

// TestEngineRestart: an engine that is stopped or killed ends all its containers. After its
// restart each of them is reported with a reason, new ones can be created, and all can be
// deleted completely.
func TestEngineRestart(t *testing.T) {
	t.Parallel()
	e := newOwnEngine(t, "")
	scope := provider.Scope{ClusterID: "restart", Shard: "s"}
	p := e.open(t, scope)
	for name, signal := range map[string]syscall.Signal{"stopped": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) { testRestart(t, e, p, scope, signal) })
	}
}

func testRestart(t *testing.T, e *ownEngine, p *docker.Provider, scope provider.Scope, signal syscall.Signal) {
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
	e.stop(t, signal)
	if err := <-watched; err == nil || provider.Definite(err) {
		t.Errorf("the end of the watch: %v", err)
	}
	_, createErr := p.Create(t.Context(), newSpec(t, scope, nil))
	_, getErr := provider.GetOne(t.Context(), p, refs[0])
	for what, err := range map[string]error{"create": createErr, "get": getErr, "delete": provider.DeleteOne(t.Context(), p, refs[0])} {
		if err == nil || provider.Definite(err) || errors.Is(err, provider.ErrNotFound) {
			t.Errorf("%s without an engine: %v", what, err)
		}
	}
	if err := e.start(t); err != nil {
		t.Fatal(err)
	}
	reasons := awaitDeaths(t, p, machines)
	for n, a := range p.Get(t.Context(), refs) {
		if a.Err != nil || a.VM.State != provider.StateStopped || !strings.Contains(a.VM.Reason, "exit code ") || reasons[a.VM.ID] == "" {
			t.Errorf("after the restart: %+v, %v; reason %q", a.VM, a.Err, reasons[refs[n].ID])
		}
	}
	again, err := p.Create(t.Context(), specs[0])
	if err != nil || again.ProviderID != refs[0].ProviderID || again.State != provider.StateStopped {
		t.Errorf("a repeated create of a stopped container: %+v, %v", again, err)
	}
	other, err := p.Create(t.Context(), newSpec(t, scope, nil))
	if err != nil || other.State != provider.StateRunning {
		t.Errorf("another container: %+v, %v", other, err)
	}
	for n, err := range p.Delete(t.Context(), append(refs, other.Ref())) {
		if err != nil {
			t.Errorf("delete %d: %v", n, err)
		}
	}
	e.wantEmpty(t)
}

// awaitDeaths watches until it has received that many deaths, and returns their reasons.
func awaitDeaths(t *testing.T, p *docker.Provider, want int) map[fleet.InstanceID]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reasons := map[fleet.InstanceID]string{}
	err := p.Watch(ctx, func(e provider.Event) {
		if e.VM.State == provider.StateStopped {
			reasons[e.VM.ID] = e.VM.Reason
		}
		if len(reasons) == want {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the watch after the restart: %v, reasons %v", err, reasons)
	}
	return reasons
}

// TestFullDisk: creates on a full disk are refused, leave nothing behind, and succeed when
// there is space again.
func TestFullDisk(t *testing.T) {
	needEngine(t)
	t.Parallel()
	e := newOwnEngine(t, "64m")
	scope := provider.Scope{ClusterID: "full", Shard: "s"}
	p := e.open(t, scope)
	first, err := p.Create(t.Context(), newSpec(t, scope, nil))
	if err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(e.dir, "data", "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for part := make([]byte, 1<<16); err == nil; {
		_, err = filler.Write(part)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	spec := newSpec(t, scope, nil)
	for range 3 {
		if _, err := p.Create(t.Context(), spec); !errors.Is(err, provider.ErrQuota) || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("on a full disk: %v", err)
		}
	}
	if vms, err := p.List(t.Context()); err != nil || len(vms) != 1 || vms[0].ProviderID != first.ProviderID {
		t.Errorf("after refused creates: %+v, %v", vms, err)
	}
	if err := filler.Truncate(0); err != nil {
		t.Fatal(err)
	}
	second, err := p.Create(t.Context(), spec)
	if err != nil || second.State != provider.StateRunning {
		t.Errorf("with space again: %+v, %v", second, err)
	}
	for n, err := range p.Delete(t.Context(), []provider.Ref{first.Ref(), second.Ref()}) {
		if err != nil {
			t.Errorf("delete %d: %v", n, err)
		}
	}
	e.wantEmpty(t)
}
