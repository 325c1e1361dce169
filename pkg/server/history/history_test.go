package history_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/history"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestBounded: the number and the size of events are bounded, and the oldest go first.
func TestBounded(t *testing.T) {
	simulated(t, func(f *fixture) {
		a := f.lead(1)
		for n := range history.MaxEvents + 10 {
			a.happened(fmt.Sprint("r", n))
		}
		all := a.told()
		if len(all) != history.MaxEvents || all[0] != "1.11 r10" {
			f.Errorf("%d events, from %s", len(all), all[0])
		}
		long := strings.Repeat("é", 1<<16)
		for range 400 {
			a.Record(fleet.Event{
				Kind: fleet.EventChange, Tenant: "default", Instance: fleet.InstanceID(long), Message: long, Reason: long, Actor: long,
				Changes: changes(long, 99),
			})
			a.happened("between") // a change that repeats the last one is left out
			a.Record(fleet.Event{Kind: fleet.EventChange, Tenant: "default", Instance: fleet.InstanceID(long), Reason: "other"})
		}
		time.Sleep(time.Minute)
		stored, err := f.inner.Get(f.Context(), key)
		if err != nil || len(stored.Body) > history.MaxBytes+1000 || len(stored.Body) < history.MaxBytes/2 {
			f.Errorf("%d bytes are stored, %v", len(stored.Body), err)
		}
	})
}

func changes(text string, n int) (all []fleet.Change) {
	for range n {
		all = append(all, fleet.Change{Name: text, From: text, To: text})
	}
	return all
}

// TestFair: a tenant whose events are many does not make another's disappear.
func TestFair(t *testing.T) {
	simulated(t, func(f *fixture) {
		a := f.lead(1)
		a.Record(fleet.Event{Kind: fleet.EventDelete, Tenant: "quiet", Group: "web", Reason: "once"})
		a.Record(fleet.Event{Kind: fleet.EventTakeover, Reason: "shard"})
		for n := range 3 * history.MaxEvents {
			a.happened(fmt.Sprint("r", n))
		}
		all := a.told()
		if len(all) != history.MaxEvents || all[0] != "1.1 once" || all[1] != "1.2 shard" {
			f.Errorf("%d events, from %q", len(all), all[:2])
		}
	})
}

// TestFollow: a follower gets what there is after an ID, the end of that, and then each new event;
// one that does not read is cut off.
func TestFollow(t *testing.T) {
	simulated(t, func(f *fixture) {
		a := f.lead(1)
		for _, reason := range []string{"one", "two", "three"} {
			a.happened(reason)
		}
		notThree := func(e *fleet.Event) bool { return e.Reason != "three" }
		r := a.Follow(fleet.EventID{Epoch: 1, Number: 1}, notThree, 2)
		defer r.Close()
		next := func() string {
			e, ok, err := r.Next()
			switch {
			case err != nil:
				return "error"
			case !ok:
				return "nothing"
			case e == nil:
				return "end"
			}
			return e.Reason
		}
		for _, want := range []string{"two", "end", "nothing"} {
			if got := next(); got != want {
				f.Errorf("%s, want %s", got, want)
			}
		}
		a.happened("four")
		a.happened("three")
		if got := next(); got != "four" {
			f.Error(got)
		}
		for range 9 {
			a.happened("more")
		}
		if got := next(); got != "error" {
			f.Error("a slow reader gets", got)
		}
	})
}

// TestCause: a decision that carries out a change names it, and its caller within the tenant.
func TestCause(t *testing.T) {
	const by = "spiffe://example/default/operator/opr1"
	web := func(kind fleet.EventKind, reason string) fleet.Event {
		return fleet.Event{Kind: kind, Tenant: "default", Group: "web", Instance: "knd1", Reason: reason, Message: "it is the oldest"}
	}
	for name, c := range map[string]struct {
		change   fleet.Event
		after    time.Duration
		decision fleet.Event
		want     string
	}{
		"scaled down": {
			fleet.Event{Tenant: "default", Group: "web", Message: "size 5 -> 3", Changes: resized("5", "3")},
			time.Second, web(fleet.EventDrain, plan.ReasonScaleDown), "it is the oldest; size 5 -> 3 at 2000-01-01T00:00:00Z by " + by,
		},
		"scaled up": {
			fleet.Event{Tenant: "default", Group: "web", Message: "size 3 -> 5", Changes: resized("3", "5")},
			time.Second, web(fleet.EventCreate, plan.ReasonScaleUp), "it is the oldest; size 3 -> 5 at 2000-01-01T00:00:00Z by " + by,
		},
		"scaled up long ago": {
			fleet.Event{Tenant: "default", Group: "web", Message: "size 3 -> 5", Changes: resized("3", "5")},
			24 * time.Hour, web(fleet.EventCreate, plan.ReasonScaleUp), "it is the oldest",
		},
		"another group": {
			fleet.Event{Tenant: "default", Group: "db", Message: "size 5 -> 3", Changes: resized("5", "3")},
			time.Second, web(fleet.EventDrain, plan.ReasonScaleDown), "it is the oldest",
		},
		"another change": {
			fleet.Event{Tenant: "default", Group: "web", Message: "vars n", Changes: []fleet.Change{{Name: "vars", To: "n"}}},
			time.Second, web(fleet.EventDrain, plan.ReasonScaleDown), "it is the oldest",
		},
		"requested": {
			fleet.Event{Tenant: "default", Instance: "knd1", Message: "its removal was requested"},
			time.Second, web(fleet.EventDrain, plan.ReasonReplaceAsked),
			"it is the oldest; its removal was requested at 2000-01-01T00:00:00Z by " + by,
		},
		"of another tenant": {
			fleet.Event{Message: "the config was replaced"},
			time.Second, fleet.Event{Kind: fleet.EventDrain, Tenant: "prod", Group: "web", Reason: plan.ReasonDrift, Message: "it is outdated"},
			"it is outdated; the config was replaced at 2000-01-01T00:00:00Z",
		},
		"lost": {
			fleet.Event{Tenant: "default", Group: "web", Message: "size 5 -> 3", Changes: resized("5", "3")},
			time.Second, web(fleet.EventDelete, plan.ReasonVMGone), "it is the oldest",
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(f *fixture) {
				a := f.lead(1)
				c.change.Kind, c.change.Actor = fleet.EventChange, by
				a.Record(c.change)
				time.Sleep(c.after)
				a.end()
				b := f.lead(2) // what caused a decision is known after a takeover too
				b.Complete(f.Context())
				b.Record(c.decision)
				all := b.Events(fleet.EventID{}, every)
				if got := all[len(all)-1].Message; got != c.want {
					f.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

// TestRepeated: a change that only repeats the last one of its subject is told once.
func TestRepeated(t *testing.T) {
	simulated(t, func(f *fixture) {
		a := f.lead(1)
		ask := func(reason string, id fleet.InstanceID) {
			a.Record(fleet.Event{Kind: fleet.EventChange, Tenant: "default", Instance: id, Actor: "x", Reason: reason})
		}
		ask("delete", "1")
		ask("delete", "2")
		ask("delete", "1")
		ask("ack", "1")
		ask("delete", "1")
		f.want(a, "1.1 delete", "1.2 delete", "1.3 ack", "1.4 delete")
	})
}

func resized(from, to string) []fleet.Change {
	return []fleet.Change{{Name: "size", From: from, To: to}}
}
