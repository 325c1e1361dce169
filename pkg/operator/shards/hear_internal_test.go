package shards

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// word is a message of a stream of groups.
func word(size int32, etag string) client.Event {
	g := &nstancev1.GroupStatus{Key: "web", Size: size, Etag: etag}
	return client.Event{Kind: client.Changed, Of: client.WatchGroups, Key: g.GetKey(), Group: g}
}

// TestWhatTheStreamToldBeforeAnAnswer, and which arrives after it, is recognised where possible;
// otherwise the stream wins.
func TestWhatTheStreamToldBeforeAnAnswer(t *testing.T) {
	m := newMemory(client.Shard{ID: "one"}, time.Now)
	size := func(want int32, what string) {
		t.Helper()
		if got := m.groups.get("web").GetSize(); got != want {
			t.Errorf("%s: size %d, want %d", what, got, want)
		}
	}
	m.hear(0, word(1, "a"))
	_, _, asked := m.shard()
	m.mergeGroup(word(2, "b").Group, asked)
	if events := m.hear(0, word(1, "a")); len(events) > 0 {
		t.Errorf("an old word made %v", events)
	}
	size(2, "after an old word")
	m.hear(0, word(3, "c"))
	size(3, "after a newer word")
	m.hear(0, word(1, "a"))
	size(1, "after a word of unknown age")

	// The answer to a poll counts for a shard that was restored to an earlier state.
	_, _, asked = m.shard()
	m.mergeGroup(word(4, "d").Group, asked)
	_, _, asked = m.shard()
	m.listGroups(0, asked, &nstancev1.ListGroupsResponse{Groups: []*nstancev1.GroupStatus{word(1, "a").Group}})
	size(1, "after a poll")
	if m.hear(0, word(5, "e")); m.groups.get("web").GetSize() != 5 {
		t.Error("the stream is not heard any more")
	}
}

// TestInstancesOfAGroupAreDropped: a leader of an older version answers with them.
func TestInstancesOfAGroupAreDropped(t *testing.T) {
	m := newMemory(client.Shard{ID: "one"}, time.Now)
	group := func(etag string) *nstancev1.GroupStatus {
		return &nstancev1.GroupStatus{Key: "web", Etag: etag, Instances: []*nstancev1.GroupInstance{{Id: "knd1"}}}
	}
	_, _, asked := m.shard()
	m.mergeGroup(group("a"), asked)
	if g := m.groups.get("web"); g.GetEtag() != "a" || len(g.GetInstances()) > 0 {
		t.Errorf("after a change: %v", g)
	}
	_, _, asked = m.shard()
	m.listGroups(0, asked, &nstancev1.ListGroupsResponse{Groups: []*nstancev1.GroupStatus{group("b")}})
	if g := m.groups.get("web"); g.GetEtag() != "b" || len(g.GetInstances()) > 0 {
		t.Errorf("after a list: %v", g)
	}
}

// TestTwoChangesAtOnce: a poll finds out which of them came later.
func TestTwoChangesAtOnce(t *testing.T) {
	m := newMemory(client.Shard{ID: "one"}, time.Now)
	m.hear(0, word(1, "a"))
	_, _, asked := m.shard()
	m.hear(0, word(7, "z"))
	m.mergeGroup(word(2, "b").Group, asked)
	select {
	case <-m.hurt:
	default:
		t.Error("no poll was asked for")
	}
}

// TestPhasesOnlyGoForward: neither an old answer nor an old message reverts one.
func TestPhasesOnlyGoForward(t *testing.T) {
	m := newMemory(client.Shard{ID: "one"}, time.Now)
	of := func(p nstancev1.InstancePhase) *nstancev1.InstanceStatus {
		return &nstancev1.InstanceStatus{Id: "i", Phase: p}
	}
	tell := func(p nstancev1.InstancePhase) {
		m.hear(0, client.Event{Kind: client.Changed, Of: client.WatchAllInstances, Key: "i", Instance: of(p)})
	}
	is := func(want nstancev1.InstancePhase, what string) {
		t.Helper()
		if got := m.instances.get("i").GetPhase(); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	const (
		pending  = nstancev1.InstancePhase_INSTANCE_PHASE_PENDING
		running  = nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING
		draining = nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING
	)
	m.mergeInstance(of(running), 0)
	tell(pending)
	is(running, "after an old word")
	tell(draining)
	m.mergeInstance(of(running), 0)
	is(draining, "after an old answer")
}

// TestAnEarlierTermIsNotHeard: streams at a shard's former addresses are ignored.
func TestAnEarlierTermIsNotHeard(t *testing.T) {
	m := newMemory(client.Shard{ID: "one", Addrs: []string{"a"}}, time.Now)
	m.hear(0, word(1, "a"))
	m.move([]string{"b"})
	m.hear(0, word(2, "b"))
	other := &nstancev1.GroupStatus{Key: "other"}
	m.listGroups(0, m.tick, &nstancev1.ListGroupsResponse{Groups: []*nstancev1.GroupStatus{other}})
	m.listInstances(0, m.tick, []*nstancev1.InstanceStatus{{Id: "i", Group: "web"}})
	m.ended(0, nil)
	if m.groups.get("web").GetSize() != 1 || m.groups.get("other") != nil || m.instances.get("i") != nil {
		t.Error("it was heard")
	}
	if m.hear(1, word(2, "b")); m.groups.get("web").GetSize() != 2 {
		t.Error("the one that follows now is not heard")
	}
	m.forget()
	if events := m.hear(1, word(3, "c")); len(events) > 0 {
		t.Errorf("of a shard that is forgotten: %v", events)
	}
}

// TestASnapshotEndsWhatItLacks: after streams were opened anew, whatever they had told before stays
// until a whole snapshot lacks it, and absence proves nothing meanwhile.
func TestASnapshotEndsWhatItLacks(t *testing.T) {
	away := status.Error(codes.Unavailable, "away")
	of := []string{client.WatchGroups, client.WatchAllInstances}
	for name, anew := range map[string]func(*memory){
		"opened anew": func(m *memory) { m.restart(0) },
		"ended":       func(m *memory) { m.ended(0, away) },
		"moved": func(m *memory) {
			if m.move([]string{"b"}); m.state.Synced {
				t.Error("it moved and was not heard there yet, but it is synced")
			}
			m.restart(m.term)
		},
		"lost": func(m *memory) {
			for _, what := range of {
				m.hear(0, client.Event{Kind: client.Lost, Of: what, Err: away})
			}
		},
	} {
		for n := range 4 {
			first, resumed := of[n%2], n > 1
			m := followed(&nstancev1.InstanceStatus{Id: "early"})
			m.noteMissing("web", "never")
			m.hear(0, word(2, "b"))
			late := &nstancev1.InstanceStatus{Id: "late"}
			m.hear(0, client.Event{Kind: client.Changed, Of: client.WatchAllInstances, Key: "late", Instance: late})
			m.mergeInstance(&nstancev1.InstanceStatus{Id: "answered"}, m.tick)
			if !m.missed("web", "never") {
				t.Errorf("%s: what the shard has not is not missing", name)
			}
			anew(m)
			if m.state.Synced || m.missed("web", "never") || m.groups.get("web") == nil || len(m.instances.rows) != 3 {
				t.Errorf("%s: synced %t, and absence is proof: %v", name, m.state.Synced, m.instances.rows)
			}
			for _, what := range []string{first, of[1-n%2]} {
				e := client.Event{Kind: client.Synced, Of: what, Resumed: resumed && what == client.WatchAllInstances}
				if m.hear(m.term, e); m.state.Synced == (what == first) {
					t.Errorf("%s: after %s, with %s first: synced %t", name, what, first, m.state.Synced)
				}
			}
			want := map[bool]int{false: 0, true: 3}[resumed]
			if m.groups.get("web") != nil || len(m.instances.rows) != want {
				t.Errorf("%s, resumed %t: %v, and %d instances: want none, and %d", name, resumed, m.groups.rows, len(m.instances.rows), want)
			}
		}
	}
}

// TestProblemsAreBounded, and a repeated one is kept once.
func TestProblemsAreBounded(t *testing.T) {
	var all problems
	for n := range 3 * maxProblems {
		all = all.with(&nstancev1.WatchErrorsResponse{Reason: "R", InstanceId: string(rune('a' + n%(maxProblems+10)))})
	}
	if len(all) != maxProblems {
		t.Errorf("%d are kept", len(all))
	}
	last := all[len(all)-1]
	if all = all.with(&nstancev1.WatchErrorsResponse{Reason: "R", InstanceId: last.GetInstanceId(), Over: true}); len(all) != maxProblems-1 {
		t.Errorf("%d are kept after one was over", len(all))
	}
}
