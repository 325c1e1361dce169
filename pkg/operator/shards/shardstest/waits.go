package shardstest

import (
	"slices"
	"testing"
	"time"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/proto"
)

// Synced waits until all configured shards of the Set are synced.
func (w *World) Synced() {
	w.tb.Helper()
	Eventually(w.tb, "all shards are synced", func() bool {
		return !slices.ContainsFunc(w.Set.Names(), func(id string) bool {
			st, ok := w.Set.State(id)
			return !ok || !st.Synced || !st.Reachable || st.ProviderKind == ""
		})
	})
}

// Heard waits until the Set, if it runs, has the current state of each of its shards: that it
// is down, or else all that it has. Shards that hang or are muted are not waited for.
func (w *World) Heard() {
	w.tb.Helper()
	w.mu.Lock()
	running := w.running
	w.mu.Unlock()
	if !running {
		return
	}
	Eventually(w.tb, "the set is up to date", func() bool {
		return !slices.ContainsFunc(w.Set.Names(), func(id string) bool { return !w.heard(w.Shard(id)) })
	})
}

func (w *World) heard(s *Shard) bool {
	st, _ := w.Set.State(s.ID)
	s.up.Lock()
	up := s.stop != nil
	s.up.Unlock()
	switch {
	case !up:
		return !st.Reachable && st.Err != nil
	case s.faults.silent():
		return true
	}
	return st.Synced && st.Reachable && w.known(s)
}

// known reports whether the Set has a shard's state; it may have more tombstones.
func (w *World) known(s *Shard) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range w.Set.Instances(s.ID, "") {
		if s.instances[i.GetId()] == nil && i.GetPhase() != deleted {
			return false
		}
	}
	for _, i := range s.instances {
		if !proto.Equal(i.InstanceStatus, w.Set.Instance(s.ID, i.Id)) {
			return false
		}
	}
	for _, g := range s.groups {
		if !proto.Equal(s.groupFor(g, &nstancev1.WatchGroupsRequest{OmitInstances: true}), w.Set.Group(s.ID, g.name)) {
			return false
		}
	}
	return len(w.Set.Groups(s.ID)) == len(s.groups)
}

// patience is for a machine that is busy: only what never comes takes longer.
const patience = 3 * time.Minute

// Eventually waits until something holds, for a time that only what never comes takes.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for limit := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			tb.Fatalf("not within %v: %s", patience, what)
		}
	}
}
