package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	upsert   = nstancev1.EventType_EVENT_TYPE_UPSERT
	removed  = nstancev1.EventType_EVENT_TYPE_DELETE
	snapshot = nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END
)

// instances builds messages about instances: "a" is draining, "a!" is deleted, "." is the end
// of the snapshot, "~" the end of a resumed one; the text after @ is the resume token.
func instances(text string) (all []*nstancev1.WatchInstancesResponse) {
	for _, word := range strings.Fields(text) {
		word, place, _ := strings.Cut(word, "@")
		m := &nstancev1.WatchInstancesResponse{Type: snapshot, ResumeToken: place, Resumed: word == "~"}
		if word != "." && word != "~" {
			id, gone := strings.CutSuffix(word, "!")
			m.Type, m.Instance = upsert, &nstancev1.InstanceStatus{Id: id, Phase: nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING}
			if gone {
				m.Instance.Phase = nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
			}
		}
		all = append(all, m)
	}
	return all
}

// groups builds messages about groups: "a" is a group, "-a" its removal.
func groups(text string) (all []*nstancev1.WatchGroupsResponse) {
	for _, word := range strings.Fields(text) {
		key, gone := strings.CutPrefix(word, "-")
		m := &nstancev1.WatchGroupsResponse{Type: upsert, Key: key, Group: &nstancev1.GroupStatus{Key: key}}
		switch {
		case word == ".":
			m = &nstancev1.WatchGroupsResponse{Type: snapshot}
		case gone:
			m.Type, m.Group = removed, nil
		}
		all = append(all, m)
	}
	return all
}

func word(e client.Event) string {
	switch {
	case e.Kind == client.Synced:
		return map[bool]string{true: "~", false: "."}[e.Resumed]
	case e.Kind == client.Lost:
		return "lost"
	case e.Missed:
		return "missed-" + e.Key
	case e.Kind == client.Gone:
		return "-" + e.Key
	case e.Key != e.Group.GetKey()+e.Instance.GetId():
		return fmt.Sprintf("%+v", e)
	default:
		return e.Key
	}
}

// watched returns the events of a watch within a minute.
func (f *fixture) watched(s *server, of string) string {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	time.AfterFunc(time.Minute, cancel) // with a deadline, the server would end it at the same moment
	var seen []string
	shard := client.Shard{ID: "one", Addrs: []string{s.addr}}
	err := f.client(nil).Watch(ctx, []client.Shard{shard}, []string{of}, func(e client.Event) error {
		if e.Shard != "one" || e.Of != of {
			f.t.Errorf("an event of %s of shard %s", e.Of, e.Shard)
		}
		seen = append(seen, word(e))
		return nil
	})
	if err != nil {
		f.t.Errorf("it ended with %v", err)
	}
	return strings.Join(seen, " ")
}

// TestWatchOfInstances: instances that are missing after a reconnection are gone.
func TestWatchOfInstances(t *testing.T) {
	away := rpc.Unavailable.Errorf("going")
	for name, c := range map[string]struct {
		streams []string
		want    string
	}{
		"nothing":               {[]string{"."}, "."},
		"changes":               {[]string{"a . b a"}, "a . b a"},
		"all as before":         {[]string{"a .", "a ."}, "a . lost a ."},
		"one went":              {[]string{"a b .", "b ."}, "a b . lost b missed-a ."},
		"a later one went":      {[]string{"a . b", "a ."}, "a . b lost a missed-b ."},
		"all went, once":        {[]string{"b a .", ".", "."}, "b a . lost missed-a missed-b . lost ."},
		"cut in the snapshot":   {[]string{"a b .", "a", "b ."}, "a b . lost a lost b missed-a ."},
		"cut in the first one":  {[]string{"a b", "b ."}, "a b lost b missed-a ."},
		"deleted is not missed": {[]string{"a . a!", "."}, "a . a lost ."},
		"deleted in a snapshot": {[]string{"a .", "a! ."}, "a . lost a ."},
		"it came back":          {[]string{"a .", ".", "a ."}, "a . lost missed-a . lost a ."},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				s := f.up("one", "10.0.0.1")
				for n, text := range c.streams {
					one := stream{instances: instances(text), end: away}
					if n == len(c.streams)-1 {
						one.end = nil
					}
					s.streams = append(s.streams, one)
				}
				if got := f.watched(s, client.WatchInstances); got != c.want {
					t.Errorf("saw %q, want %q", got, c.want)
				}
			})
		})
	}
}

// TestWatchResumes: a watch of instances resumes where the previous stream ended, keeps what
// it knew, and drops a token that the server rejects.
func TestWatchResumes(t *testing.T) {
	away := rpc.Unavailable.Errorf("going")
	for name, c := range map[string]struct {
		streams []string
		want    string
		asked   []string
	}{
		"nothing since":  {[]string{"a@1 b@2 .@3", "~@4"}, "a b . lost ~", []string{"", "3"}},
		"changes since":  {[]string{"a b .@3 b@4", "b!@5 c@5 ~@6", "."}, "a b . b lost b c ~ lost missed-a missed-c .", []string{"", "4", "6"}},
		"another leader": {[]string{"a b .@3", "b@0 .@1", "~@1"}, "a b . lost b missed-a . lost ~", []string{"", "3", "1"}},
		"cut in between": {
			[]string{"a .@3", "c@3", "c@4 ~@5", "."}, "a . lost c lost c ~ lost missed-a missed-c .", []string{"", "3", "3", "5"},
		},
		"place not taken": {[]string{"a .@3", "refused", ". "}, "a . lost lost missed-a .", []string{"", "3", ""}},
	} {
		for _, of := range []string{client.WatchInstances, client.WatchAllInstances} {
			t.Run(name+" of "+of, func(t *testing.T) {
				withFixture(t, func(f *fixture) {
					s := f.up("one", "10.0.0.1")
					for n, text := range c.streams {
						one := stream{instances: instances(text), end: away}
						switch {
						case text == "refused":
							one = stream{end: rpc.Invalid.Errorf("resume_token: no")}
						case n == len(c.streams)-1:
							one.end = nil
						}
						s.streams = append(s.streams, one)
					}
					if got := f.watched(s, of); got != c.want {
						t.Errorf("saw %q, want %q", got, c.want)
					}
					var asked []string
					for _, req := range s.watches {
						asked = append(asked, req.GetResumeToken())
						if req.GetAll() != (of == client.WatchAllInstances) {
							t.Errorf("asked for %v", req)
						}
					}
					if !slices.Equal(asked, c.asked) {
						t.Errorf("asked to go on from %q, want %q", asked, c.asked)
					}
				})
			})
		}
	}
}

// TestInstances: pages are fetched one after another.
func TestInstances(t *testing.T) {
	withFixture(t, func(f *fixture) {
		s := f.up("one", "10.0.0.1")
		s.pages = [][]string{{"a", "b"}, {}, {"c"}}
		shard := client.Shard{ID: "one", Addrs: []string{s.addr}}
		list := func(ctx context.Context, leader client.Service) ([]*nstancev1.InstanceStatus, error) {
			return client.Instances(ctx, leader, "web", true)
		}
		all, err := client.Call(f.t.Context(), f.client(nil), shard, list)
		var ids []string
		for _, i := range all {
			ids = append(ids, i.GetId())
		}
		if want := []string{"a", "b", "c"}; err != nil || !slices.Equal(ids, want) {
			t.Errorf("listed %q, %v; want %q", ids, err, want)
		}
	})
}

// TestPagesAreWholeOrNone: pages that could not all be read are no list, which would lack the rest.
func TestPagesAreWholeOrNone(t *testing.T) {
	cut := errors.New("cut off")
	all, err := client.Pages(func(token string) ([]string, string, error) {
		if token == "" {
			return []string{"a"}, "next", nil
		}
		return []string{"b"}, "", cut
	})
	if !errors.Is(err, cut) || len(all) > 0 {
		t.Errorf("listed %q, %v", all, err)
	}
}

func TestWatchOfGroups(t *testing.T) {
	withFixture(t, func(f *fixture) {
		s := f.up("one", "10.0.0.1")
		away := rpc.Exhausted.Errorf("read faster")
		s.streams = []stream{{groups: groups("a b c . -a"), end: away}, {groups: groups("b . -b")}}
		if got, want := f.watched(s, client.WatchGroups), "a b c . -a lost b missed-c . -b"; got != want {
			t.Errorf("saw %q, want %q", got, want)
		}
	})
}

// TestWatchFollows: a watch follows a leader without reporting the shard as lost.
func TestWatchFollows(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, b := f.up("one", "10.0.0.1"), f.up("one", "10.0.0.2")
		a.set(func() { a.leader = b.addr })
		b.streams = []stream{{groups: groups("a .")}}
		if got := f.watched(a, client.WatchGroups); got != "a ." {
			t.Errorf("saw %q", got)
		}
	})
}

// TestWatchFollowsAMove: when the leader's address moves while it is watched, the whole snapshot of
// the next leader decides what is gone, and not a part of it.
func TestWatchFollowsAMove(t *testing.T) {
	for _, of := range []string{client.WatchGroups, client.WatchAllInstances} {
		withFixture(t, func(f *fixture) {
			a, b := f.up("one", "10.0.0.1"), f.up("one", "10.0.0.2")
			say := func(text string, end error) stream {
				return stream{groups: groups(text), instances: instances(text), end: end}
			}
			moved, err := status.New(codes.Unavailable, "moved").WithDetails(&errdetails.ErrorInfo{
				Reason: "NOT_LEADER", Domain: "nstance.dev", Metadata: map[string]string{"leader_addr": b.addr},
			})
			if err != nil {
				t.Fatal(err)
			}
			a.streams = []stream{say("x y .", moved.Err()), say("", moved.Err())}
			b.streams = []stream{say("y", rpc.Unavailable.Errorf("going")), say("y z .", nil)}
			if got, want := f.watched(a, of), "x y . y lost y z missed-x ."; got != want {
				t.Errorf("%s: saw %q, want %q", of, got, want)
			}
		})
	}
}

// TestWatchEnds: permanent errors, and the caller's error, end a watch.
func TestWatchEnds(t *testing.T) {
	withFixture(t, func(f *fixture) {
		one, two := f.up("one", "10.0.0.1"), f.up("two", "10.0.0.2")
		shards := []client.Shard{{ID: "one", Addrs: []string{one.addr}}, {ID: "two", Addrs: []string{two.addr}}}
		var err error
		for _, kind := range []rpc.Kind{rpc.Denied, rpc.Precondition, rpc.NotFound, rpc.Invalid, rpc.Unimplemented} {
			two.set(func() { two.streams = []stream{{groups: groups("a ."), end: kind.Errorf("not yours")}} })
			var seen []string
			err = f.client(nil).Watch(f.t.Context(), shards, []string{client.WatchGroups}, func(e client.Event) error {
				seen = append(seen, word(e))
				return nil
			})
			if err == nil || !strings.HasPrefix(err.Error(), "shard two: ") || !slices.Equal(seen, []string{"a", "."}) {
				t.Errorf("%v after %v", err, seen)
			}
		}

		two.set(func() { two.streams = []stream{{groups: groups("a b .")}} })
		enough := errors.New("enough")
		n := 0
		err = f.client(nil).Watch(f.t.Context(), shards, []string{client.WatchGroups}, func(client.Event) error {
			n++
			return enough
		})
		if !errors.Is(err, enough) || n != 1 {
			t.Errorf("%v after %d events", err, n)
		}
	})
}
