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

// story is what one observer has been told of one instance.
type story struct{ ended bool }

// hear fails the test when an end is told without its reason, or taken back.
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

// TestEndIsToldOnce has agents end while they are created: neither the create nor
// whoever asks meanwhile hears of an end before its reason is known.
func TestEndIsToldOnce(t *testing.T) {
	w := newWorld(t)
	cfg := w.config(t, scope)
	cfg.Agent = filepath.Join(w.dir, "agent")
	if err := os.WriteFile(cfg.Agent, []byte("\x7fELF but not really"), 0o700); err != nil {
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
		for range 2 { // the second finds what the first made
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

// createBusy returns an instance whose agent is past its start.
func (w *world) createBusy(t *testing.T, p *process.Provider, s provider.Spec) provider.VM {
	t.Helper()
	vm := create(t, p, s)
	eventually(t, "the agent wrote its environment", func() bool {
		_, err := os.Stat(filepath.Join(w.folder(vm), "environment"))
		return err == nil
	})
	return vm
}

// TestEndDoesNotBringFolderBack has an agent end when another server has removed
// all but the folder itself.
func TestEndDoesNotBringFolderBack(t *testing.T) {
	w := newWorld(t)
	vm := w.createBusy(t, open(t, w.config(t, scope)), spec(1))
	pid := w.pid(vm)
	entries, err := os.ReadDir(w.folder(vm))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(w.folder(vm), e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	kill(t, pid)
	eventually(t, "the folder is gone", func() bool { _, err := os.Stat(w.folder(vm)); return os.IsNotExist(err) })
}

// TestEndIsNotAnothers has an agent end whose folder was removed, and made again
// for a second one: no answer about the second tells of the first's end, and its own
// end waits for its reason as ever.
func TestEndIsNotAnothers(t *testing.T) {
	w := newWorld(t)
	cfg := w.config(t, scope)
	cfg.ScanInterval = time.Hour
	p := open(t, cfg)
	vm := w.createBusy(t, p, spec(1))
	first := w.pid(vm)
	if err := os.RemoveAll(w.folder(vm)); err != nil {
		t.Fatal(err)
	}
	w.createBusy(t, p, spec(1))
	mark := filepath.Join(w.folder(vm), "deleting")
	heard := watch(t, p)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kill(t, first)
	await(t, heard, vm.ID, provider.StateDeleting) // once the first's end is dealt with: all else is an hour away
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(w.folder(vm), "exit")); !os.IsNotExist(err) {
		t.Errorf("the second is said to have ended: %q, %v", text, err)
	}
	lock := hold(t, w.folder(vm))
	kill(t, w.pid(vm))
	if got := state(t, p, vm.Ref()); got != provider.StateRunning {
		t.Errorf("before its end can be written down the second is %s", got)
	}
	_ = lock.Close()
	eventually(t, "the second has ended", func() bool { return state(t, p, vm.Ref()) == provider.StateStopped })
}
