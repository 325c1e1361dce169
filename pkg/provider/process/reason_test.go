package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/process"
)

// story is one observer's history of one instance.
type story struct{ ended bool }

// hear fails the test if an end is reported without its reason, or reverted.
func (s *story) hear(t *testing.T, vm provider.VM) {
	t.Helper()
	stopped := vm.State == provider.StateStopped
	if stopped && vm.Reason == "" {
		t.Errorf("%s has ended and nothing is said of why", vm.ID)
	}
	if s.ended && !stopped {
		t.Errorf("%s is %s after it was shown as ended", vm.ID, vm.State)
	}
	s.ended = s.ended || stopped
}

func (s *story) ask(t *testing.T, p *process.Provider, ref provider.Ref) {
	t.Helper()
	vm, err := provider.GetOne(t.Context(), p, ref)
	if err == nil {
		s.hear(t, vm)
	} else if !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
}

// TestEndIsToldOnce: agents end while they are created; neither the create nor a concurrent call
// reports an end before its reason is known.
func TestEndIsToldOnce(t *testing.T) {
	f := newFixture(t)
	cfg := f.config(t, scope)
	cfg.Agent = filepath.Join(f.dir, "agent")
	if err := os.WriteFile(cfg.Agent, []byte("#!/bin/sh\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := open(t, cfg)
	for n := 0; n < 20 && !t.Failed(); n++ {
		ref := provider.Ref{ID: spec(n).ID}
		var asking sync.WaitGroup
		asking.Go(func() {
			for s := (story{}); !s.ended && !t.Failed(); {
				s.ask(t, p, ref)
			}
		})
		var made story
		for range 2 { // the second finds the first one's instance
			vm, err := p.Create(t.Context(), spec(n))
			if err != nil {
				t.Errorf("create: %v", err)
			}
			made.hear(t, vm)
		}
		eventually(t, "the end is told", func() bool { made.ask(t, p, ref); return made.ended || t.Failed() })
		asking.Wait()
	}
}

// hold takes the folder's lock, as another server does.
func hold(t *testing.T, dir string) *os.File {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return lock
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process has ended", func() bool { return !running(pid) })
}

// createBusy returns an instance whose agent has started completely.
func (f *fixture) createBusy(t *testing.T, p *process.Provider, s provider.Spec) provider.VM {
	t.Helper()
	vm := create(t, p, s)
	eventually(t, "the agent wrote its environment", func() bool {
		_, err := os.Stat(filepath.Join(f.folder(vm), "environment"))
		return err == nil
	})
	return vm
}

// TestEndDoesNotBringFolderBack: an agent ends when another server has removed all but the folder
// itself.
func TestEndDoesNotBringFolderBack(t *testing.T) {
	f := newFixture(t)
	vm := f.createBusy(t, open(t, f.config(t, scope)), spec(1))
	pid := f.pid(vm)
	entries, err := os.ReadDir(f.folder(vm))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(f.folder(vm), e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	kill(t, pid)
	eventually(t, "the folder is gone", func() bool { _, err := os.Stat(f.folder(vm)); return os.IsNotExist(err) })
}

// TestEndIsNotAnothers: an agent ends whose folder was removed, and recreated for a second one: no
// answer about the second reports the first's end, and its own end waits for its reason as usual.
func TestEndIsNotAnothers(t *testing.T) {
	f := newFixture(t)
	cfg := f.config(t, scope)
	cfg.ScanInterval = time.Hour
	p := open(t, cfg)
	vm := f.createBusy(t, p, spec(1))
	first := f.pid(vm)
	if err := os.RemoveAll(f.folder(vm)); err != nil {
		t.Fatal(err)
	}
	f.createBusy(t, p, spec(1))
	mark := filepath.Join(f.folder(vm), "deleting")
	heard := watch(t, p)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kill(t, first)
	await(t, heard, vm.ID, provider.StateDeleting) // once the first's end is processed: the next scan is an hour away
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(f.folder(vm), "exit")); !os.IsNotExist(err) {
		t.Errorf("the second is said to have ended: %q, %v", text, err)
	}
	lock := hold(t, f.folder(vm))
	kill(t, f.pid(vm))
	if got := state(t, p, vm.Ref()); got != provider.StateRunning {
		t.Errorf("before its end can be written down the second is %s", got)
	}
	_ = lock.Close()
	eventually(t, "the second has ended", func() bool { return state(t, p, vm.Ref()) == provider.StateStopped })
}
