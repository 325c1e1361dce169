package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// TestStoppedAreListed: an instance that is stopped has no process, and is listed as stopped until it is
// deleted, also by the next server.
func TestStoppedAreListed(t *testing.T) {
	f := newFixture(t)
	cfg := f.config(t, scope)
	cfg.StopGrace = 100 * time.Millisecond
	p := open(t, cfg)
	stubborn := spec(2)
	stubborn.Args = map[string]any{"env": map[string]any{"STUBBORN": "1"}}
	all := []provider.VM{create(t, p, spec(1)), create(t, p, stubborn), create(t, p, spec(3))}
	eventually(t, "the agent ignores SIGTERM", func() bool {
		_, err := os.Stat(filepath.Join(f.folder(all[1]), "environment"))
		return err == nil
	})
	dead := f.pid(all[2])
	if err := syscall.Kill(dead, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent is dead", func() bool { return !running(dead) })
	refs := []provider.Ref{{ID: spec(9).ID}} // never made
	for _, vm := range all {
		refs = append(refs, vm.Ref())
	}
	for _, what := range []string{"stop", "stop again"} {
		if err := errors.Join(p.Stop(t.Context(), refs)...); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	p.Close()
	next := open(t, cfg)
	for _, vm := range all {
		if got := state(t, next, vm.Ref()); got != provider.StateStopped || running(f.pid(vm)) {
			t.Errorf("%s is %s, its process runs: %v", vm.ID, got, running(f.pid(vm)))
		}
		if err := provider.DeleteOne(t.Context(), next, vm.Ref()); err != nil {
			t.Error(err)
		}
		if got := state(t, next, vm.Ref()); got != provider.StateDeleted {
			t.Errorf("%s is %s", vm.ID, got)
		}
	}
}
