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

// TestFolderOfAllIsAway: a shard's folder that is unmounted, renamed or replaced by an empty one
// says nothing about the instances, which continue to run.
func TestFolderOfAllIsAway(t *testing.T) {
	for name, replace := range map[string]bool{"not there": false, "an empty one in its place": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			p := open(t, f.config(t, scope))
			vm := create(t, p, spec(1))
			told, ended := make(chan provider.Event, 1000), make(chan error, 1)
			go func() { ended <- p.Watch(t.Context(), func(e provider.Event) { told <- e }) }()
			for n := 2; len(told) == 0; n++ { // until the watch has started
				create(t, p, spec(n))
			}
			root, away := filepath.Join(f.dir, scope.Shard), filepath.Join(f.dir, "away")
			if err := os.Rename(root, away); err != nil {
				t.Fatal(err)
			}
			if replace {
				if err := os.Mkdir(root, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for _, ref := range []provider.Ref{vm.Ref(), {ID: vm.ID}, {ProviderID: vm.ProviderID}} {
				if got, err := provider.GetOne(t.Context(), p, ref); err == nil || errors.Is(err, provider.ErrNotFound) {
					t.Errorf("get %v: %v, %v; want an error that says nothing of the instance", ref, got.State, err)
				}
				if err := provider.DeleteOne(t.Context(), p, ref); err == nil {
					t.Errorf("delete %v succeeds, and the process runs on", ref)
				}
			}
			if vms, err := p.List(t.Context()); err == nil {
				t.Errorf("list: %d, and no error", len(vms))
			}
			if _, err := p.Create(t.Context(), spec(1)); err == nil || provider.Definite(err) {
				t.Errorf("create of an instance that runs: %v, want an error that is not definite", err)
			}
			select {
			case err := <-ended:
				if err == nil {
					t.Error("the watch ends without a reason")
				}
			case <-time.After(time.Minute):
				t.Error("the watch goes on")
			}
			for len(told) > 0 {
				if e := <-told; e.VM.State == provider.StateDeleted {
					t.Errorf("%s is told to be deleted", e.VM.ID)
				}
			}
			if replace {
				if err := os.Remove(root); err != nil {
					t.Fatalf("something was put into the wrong folder: %v", err)
				}
			}
			if err := os.Rename(away, root); err != nil {
				t.Fatal(err)
			}
			if got := state(t, p, vm.Ref()); got != provider.StateRunning {
				t.Errorf("once it is back the instance is %s", got)
			}
		})
	}
}

// TestLostStateIsNotGone: while its process runs, an instance without its tags is neither not found
// nor reported as deleted; once the process has ended it is.
func TestLostStateIsNotGone(t *testing.T) {
	for name, spoil := range map[string]func(string) error{
		"removed": os.Remove,
		"emptied": func(file string) error { return os.Truncate(file, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			p := open(t, f.config(t, scope))
			vm := create(t, p, spec(1))
			if err := spoil(filepath.Join(f.folder(vm), "state.json")); err != nil {
				t.Fatal(err)
			}
			for _, ref := range []provider.Ref{vm.Ref(), {ID: vm.ID}} {
				if got, err := provider.GetOne(t.Context(), p, ref); err == nil || errors.Is(err, provider.ErrNotFound) {
					t.Errorf("get %v: %v, %v; want an error that says nothing of the instance", ref, got.State, err)
				}
			}
			if err := syscall.Kill(f.pid(vm), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is not found", func() bool {
				_, err := provider.GetOne(t.Context(), p, vm.Ref())
				return errors.Is(err, provider.ErrNotFound)
			})
		})
	}
}
