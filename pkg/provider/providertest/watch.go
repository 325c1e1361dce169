package providertest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// testDeath kills a VM: it is not alive any more, and can still be deleted.
func testDeath(t *testing.T, s *shard) {
	if s.Kill == nil {
		t.Skip("the harness can't kill a VM behind the provider's back")
	}
	vm := s.create(t)
	s.Kill(t, vm)
	s.eventually(t, "a killed VM is not alive", func() (bool, string) {
		got, err := provider.GetOne(t.Context(), s, vm.Ref())
		return isNotFound(err) || (err == nil && !got.State.Alive()), string(got.State)
	})
	s.catchUp()
	for name, ask := range map[string]func() (provider.VM, error){
		"get":  func() (provider.VM, error) { return provider.GetOne(t.Context(), s, vm.Ref()) },
		"list": func() (provider.VM, error) { return s.list(t, s)[0], nil },
	} {
		if got, err := ask(); !isNotFound(err) && (err != nil || !strings.Contains(got.Reason, s.Killed)) {
			t.Errorf("%s: a killed VM is %s because of %q, %v; want %q", name, got.State, got.Reason, err, s.Killed)
		}
	}
	spec := s.spec(t, s.scope)
	if made, err := s.Create(t.Context(), spec); err != nil || made.ID != spec.ID {
		t.Errorf("create beside a dead VM: %+v, %v", made, err)
	}
	if err := provider.DeleteOne(t.Context(), s, vm.Ref()); err != nil {
		t.Errorf("delete of a dead VM: %v", err)
	}
	s.await(t, s, vm.Ref(), provider.StateDeleted)
}

func testWatchDeath(t *testing.T, s *shard) { watchDeath(t, s, s.Provider) }

// testWatchDeathFromElsewhere watches through a handle that made nothing: the
// other server of the shard, or the same one after a restart.
func testWatchDeathFromElsewhere(t *testing.T, s *shard) { watchDeath(t, s, s.Open(t, s.scope)) }

func watchDeath(t *testing.T, s *shard, through provider.Provider) {
	watched, ok := provider.WatcherOf(through)
	if !ok || s.Kill == nil {
		t.Skip("no Watcher, or no way to kill a VM")
	}
	foreign := provider.Scope{ClusterID: s.scope.ClusterID, Shard: "shard-2"}
	if _, err := s.Open(t, foreign).Create(t.Context(), s.spec(t, foreign)); err != nil {
		t.Fatalf("create in another shard: %v", err)
	}
	victim := s.create(t)
	events := s.watch(t, watched)
	s.beacon(t, through, events)
	s.Kill(t, victim)
	deadline := time.NewTimer(s.Patience)
	defer deadline.Stop()
	for {
		select {
		case e := <-events:
			if !s.scope.Owns(e.VM.Tags) {
				t.Fatalf("told of another scope's VM: %+v", e.VM)
			}
			if e.VM.ID == victim.ID && !e.VM.State.Alive() {
				if e.VM.ProviderID != victim.ProviderID {
					t.Errorf("the event names %v, the victim was %v", e.VM.Ref(), victim.Ref())
				}
				if through == s.Provider && !strings.Contains(e.VM.Reason, s.Killed) {
					t.Errorf("the event tells of a death because of %q, want %q", e.VM.Reason, s.Killed)
				}
				return
			}
		case <-deadline.C:
			t.Fatalf("no word of the death within %v", s.Patience)
		}
	}
}

// beacon makes VMs until one is heard of: only then is the watch known to be up.
func (s *shard) beacon(t *testing.T, p provider.Provider, events <-chan provider.Event) {
	t.Helper()
	for range 100 {
		if _, err := p.Create(t.Context(), s.spec(t, s.scope)); err != nil {
			t.Fatalf("create: %v", err)
		}
		select {
		case <-events:
			return
		case <-time.After(s.Patience / 100):
		}
	}
	t.Fatal("the watch tells nothing")
}

// watch follows the changes until the test ends.
func (s *shard) watch(t *testing.T, w provider.Watcher) <-chan provider.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan provider.Event), make(chan error, 1)
	go func() {
		done <- w.Watch(ctx, func(e provider.Event) {
			select {
			case events <- e:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended with %v, want context.Canceled", err)
		}
	})
	return events
}

func testWatchEnds(t *testing.T, s *shard) {
	w, ok := provider.WatcherOf(s.Provider)
	if !ok {
		t.Skip("no Watcher")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Watch(ctx, func(provider.Event) {}) }()
	s.create(t)
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended with %v, want context.Canceled", err)
		}
	case <-time.After(s.Patience):
		t.Errorf("watch goes on %v after its context ended", s.Patience)
	}
}
