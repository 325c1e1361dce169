package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

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
