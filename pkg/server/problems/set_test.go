package problems_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/broadcast"
	"github.com/nstance/nstance/pkg/server/problems"
)

var (
	web   = fleet.GroupKey{Tenant: "prod", Name: "web"}
	db    = fleet.GroupKey{Tenant: "prod", Name: "db"}
	shard = fleet.GroupKey{}
)

type fixture struct {
	*problems.Set
	t       *testing.T
	now     time.Time
	changed []fleet.GroupKey
	log     bytes.Buffer
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, now: time.Unix(1e9, 0)}
	f.Set = problems.New(problems.Config{
		Now: func() time.Time { return f.now }, Logger: slog.New(slog.NewTextHandler(&f.log, nil)),
		Changed: func(key fleet.GroupKey) { f.changed = append(f.changed, key) },
	})
	return f
}

// set sets a problem that lasts, a second after the one before.
func (f *fixture) set(key fleet.GroupKey, id fleet.InstanceID, reason string) {
	f.now = f.now.Add(time.Second)
	f.Set.Set(fleet.Problem{At: f.now, Reason: reason, Message: "no", Group: key, Instance: id, Lasts: true})
}

// event reports a problem that does not last.
func (f *fixture) event(key fleet.GroupKey, id fleet.InstanceID, reason string) {
	f.now = f.now.Add(time.Second)
	f.Set.Set(fleet.Problem{At: f.now, Reason: reason, Message: "no", Group: key, Instance: id})
}

func all(fleet.Problem) bool   { return true }
func never(fleet.Problem) bool { return false }

// read are the problems that wait for a reader, in words.
func (f *fixture) read(r *broadcast.Reader[fleet.Problem]) (words []string) {
	f.t.Helper()
	for {
		p, ok, err := r.Next()
		if err != nil {
			f.t.Fatal(err)
		}
		if !ok {
			return words
		}
		text := strings.Join(strings.Fields(fmt.Sprint(p.Group, " ", p.Instance, " ", p.Reason)), " ")
		if p.Over {
			text += " over" + p.Message
		}
		words = append(words, text)
	}
}

// TestEnds: the end of a problem that lasts is published once, however often it was set and
// whatever else came up of its group; that of a single event is not.
func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		set   func(*fixture)
		clear func(*fixture)
		want  []string
	}{
		"one of a group": {
			func(f *fixture) { f.set(web, "", "CreatesFailing") }, func(f *fixture) { f.Clear(web, "", "CreatesFailing") },
			[]string{"prod/web CreatesFailing over"},
		},
		"of all instances of a group": {
			func(f *fixture) { f.set(web, "b", "LB"); f.set(web, "a", "LB"); f.set(web, "a", "Other") },
			func(f *fixture) { f.Clear(web, "", "LB") }, []string{"prod/web a LB over", "prod/web b LB over"},
		},
		"of one instance": {
			func(f *fixture) { f.set(web, "a", "LB"); f.set(web, "b", "LB") }, func(f *fixture) { f.Clear(web, "b", "LB") },
			[]string{"prod/web b LB over"},
		},
		"of the shard": {
			func(f *fixture) { f.set(shard, "", "Held") }, func(f *fixture) { f.Clear(shard, "", "Held") }, []string{"/ Held over"},
		},
		"another group's":  {func(f *fixture) { f.set(web, "", "X") }, func(f *fixture) { f.Clear(db, "", "X") }, nil},
		"another reason's": {func(f *fixture) { f.set(web, "", "X") }, func(f *fixture) { f.Clear(web, "", "Y") }, nil},
		"the shard's":      {func(f *fixture) { f.set(shard, "", "X") }, func(f *fixture) { f.Clear(web, "", "X") }, nil},
		"a single event":   {func(f *fixture) { f.event(web, "", "X") }, func(f *fixture) { f.Clear(web, "", "X") }, nil},
		"those that match": {
			func(f *fixture) { f.set(web, "a", "X"); f.set(db, "a", "Y"); f.set(db, "b", "Y") },
			func(f *fixture) { f.ClearAll(func(x problems.Subject) bool { return x.Instance == "a" }) },
			[]string{"prod/db a Y over", "prod/web a X over"},
		},
		"those of a group that match": {
			func(f *fixture) { f.set(web, "a", "X"); f.set(db, "a", "X") },
			func(f *fixture) { f.ClearGroup(web, func(x problems.Subject) bool { return x.Reason == "X" }) },
			[]string{"prod/web a X over"},
		},
		"a group's that is gone": {
			func(f *fixture) { f.set(web, "", "X"); f.set(db, "", "X") }, func(f *fixture) { f.Drop(web) }, []string{"prod/web X over"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			r := f.Follow(all, never, 100)
			none := f.Follow(func(p fleet.Problem) bool { return p.Group.Tenant == "other" }, never, 100)
			c.set(f)
			c.set(f)
			f.event(web, "", "Else")
			f.read(r)
			c.clear(f)
			c.clear(f)
			if have := f.read(r); !slices.Equal(have, c.want) {
				t.Errorf("published %q, want %q", have, c.want)
			}
			if have := f.read(none); len(have) > 0 {
				t.Errorf("another tenant's reader got %q", have)
			}
		})
	}
}

// TestReadersBegin with what is in the set, oldest first, and events that are not over.
func TestReadersBegin(t *testing.T) {
	f := newFixture(t)
	f.set(web, "", "First")
	f.event(web, "", "Forgotten") // by the next event of its group
	f.event(web, "a", "Event")
	f.set(shard, "", "Held")
	f.event(shard, "", "Old")
	f.set(web, "", "First") // now it is the newest
	over := func(p fleet.Problem) bool { return p.Reason == "Old" }
	if have, want := f.read(f.Follow(all, over, 100)), []string{"prod/web a Event", "/ Held", "prod/web First"}; !slices.Equal(have, want) {
		t.Errorf("a reader begins with %q, want %q", have, want)
	}
}

// TestChanged is called for each report, and for each end that there was.
func TestChanged(t *testing.T) {
	f := newFixture(t)
	f.set(web, "", "X")
	f.event(db, "a", "Y")
	f.Clear(web, "", "X")
	f.Clear(web, "", "X")
	f.Clear(db, "b", "Y")
	f.Clear(db, "a", "Y")
	if want := []fleet.GroupKey{web, db, web, db}; !slices.Equal(f.changed, want) {
		t.Errorf("changed %v, want %v", f.changed, want)
	}
	if n := strings.Count(f.log.String(), "msg=problem"); n != 2 {
		t.Errorf("%d lines of log: %s", n, f.log.String())
	}
}

// TestEventIsOver when what drops it says so, and with its group's next event.
func TestEventIsOver(t *testing.T) {
	f := newFixture(t)
	f.event(web, "a", "X")
	if f.DropEvent(web, never) || f.DropEvent(db, all) || f.Event(web).Reason != "X" {
		t.Error("dropped too soon")
	}
	if !f.DropEvent(web, all) || f.DropEvent(web, all) || f.Event(web).Reason != "" || f.Has(web) {
		t.Error("not dropped once")
	}
}

// TestNothingIsLeft of the problems of a thousand groups that are gone.
func TestNothingIsLeft(t *testing.T) {
	f := newFixture(t)
	for n := range 1000 {
		key := fleet.GroupKey{Tenant: "default", Name: fmt.Sprint("g", n)}
		f.set(key, "", "X")
		f.set(key, "a", "X")
		f.event(key, "a", "Y")
	}
	if n := len(f.Groups()); n != 1000 {
		t.Fatalf("%d groups", n)
	}
	for _, key := range f.Groups() {
		f.Drop(key)
	}
	if left := f.read(f.Follow(all, never, 100)); len(left)+len(f.Groups()) > 0 {
		t.Errorf("left: %q, %v", left, f.Groups())
	}
}

// TestGet finds a problem that lasts by its subject.
func TestGet(t *testing.T) {
	f := newFixture(t)
	f.set(web, "a", "X")
	f.event(web, "b", "X")
	for x, want := range map[problems.Subject]bool{
		{Group: web, Instance: "a", Reason: "X"}: true, {Group: web, Instance: "b", Reason: "X"}: false,
		{Group: web, Reason: "X"}: false, {Group: db, Instance: "a", Reason: "X"}: false,
	} {
		if p, ok := f.Get(x); ok != want || ok && p.Message != "no" {
			t.Errorf("%v: %v, %t", x, p, ok)
		}
	}
	if n := len(f.Lasting(web)); n != 1 {
		t.Errorf("%d last", n)
	}
}
