package traces_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/traces"
	"github.com/nstance/nstance/pkg/tracing"
	"github.com/nstance/nstance/pkg/tracing/otlp"
	"github.com/nstance/nstance/pkg/tracing/otlp/otlptest"
)

const knd fleet.InstanceID = "knd1"

// life is one instance, its record and its starts.
type life struct {
	t      *testing.T
	got    otlptest.Recorder
	starts *traces.Starts
	record *fleet.Instance // nil: none
}

// live runs a test of one instance in simulated time.
func live(t *testing.T, test func(*life)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &life{t: t}
		l.starts = traces.NewStarts(otlp.Recorded(&l.got, time.Now), time.Now)
		test(l)
	})
}

func (l *life) get(fleet.InstanceID) (fleet.Instance, bool) {
	if l.record == nil {
		return fleet.Instance{}, false
	}
	return *l.record, true
}

// becomes changes the record, which is told.
func (l *life) becomes(phase fleet.Phase, ready bool) {
	now := time.Now()
	if l.record == nil {
		l.record = &fleet.Instance{ID: knd, Tenant: "default", Group: "web", CreatedAt: now}
	}
	if l.record.Phase = phase; phase == fleet.Running && l.record.RegisteredAt == nil {
		l.record.RegisteredAt = &now
	}
	l.starts.Pending(knd, l.get)
	l.starts.Changed(l.t.Context(), *l.record, ready)
}

// launch is an attempt of a second, a second after the decision.
func (l *life) launch(during func() error) {
	decided := time.Now()
	time.Sleep(time.Second)
	i, ok := l.get(knd)
	if !ok {
		i = fleet.Instance{ID: knd, Tenant: "default", Group: "web", Phase: fleet.Pending, CreatedAt: time.Now()}
	}
	_, end := l.starts.Launch(l.t.Context(), traces.Launch{
		Instance: i, Record: l.get, Reason: "scale-up", DecidedAt: decided, StartedAt: time.Now(),
	})
	time.Sleep(time.Second)
	end(during())
}

// over checks the one start that is over: how long it took, its error, and its parts.
func (l *life) over(took time.Duration, failed string, parts ...string) {
	l.t.Helper()
	all := l.got.Named("start instance")
	if len(all) != 1 || l.starts.Follows(knd) {
		l.t.Fatalf("%d starts are over, one is followed: %t", len(all), l.starts.Follows(knd))
	}
	tree := strings.Split(l.got.Tree(tracing.InstanceTrace(string(knd))), "\n  ")
	if one := all[0]; !one.To.Equal(one.From.Add(took)) || !strings.Contains(one.Err, failed) || (one.Err == "") != (failed == "") ||
		fmt.Sprint(tree[1:]) != fmt.Sprint(parts) {
		l.t.Errorf("it took %s, %q, and has the parts %v", one.To.Sub(one.From), one.Err, tree[1:])
	}
}

func made(l *life) func() error {
	return func() error {
		l.becomes(fleet.Pending, false)
		l.starts.Made(knd)
		return nil
	}
}

func TestStart(t *testing.T) {
	t.Run("an instance becomes ready", func(t *testing.T) {
		live(t, func(l *life) {
			l.launch(made(l))
			time.Sleep(10 * time.Second)
			l.becomes(fleet.Running, false)
			time.Sleep(time.Second)
			l.becomes(fleet.Running, true)
			l.becomes(fleet.Running, true)
			l.becomes(fleet.Deleting, false)
			l.over(13*time.Second, "", "queue", "create", "boot", "become ready")
			if about := l.got.Named("start instance")[0].Attributes; about["nstance.reason"] != "scale-up" || about[tracing.AttrGroup] != "web" {
				t.Errorf("it is said to be %v", about)
			}
		})
	})
	t.Run("attempts without a record are one start", func(t *testing.T) {
		live(t, func(l *life) {
			for range 3 {
				l.launch(func() error { return errors.New("no answer") })
				l.starts.Changed(t.Context(), fleet.Instance{ID: knd}, false)
			}
			l.launch(made(l))
			l.becomes(fleet.Running, true)
			l.over(8*time.Second, "", "queue", "create", "queue", "create", "queue", "create", "queue", "create", "boot", "become ready")
		})
	})
	t.Run("one that is given up without a record has failed", func(t *testing.T) {
		live(t, func(l *life) {
			l.launch(func() error { return errors.New("no answer") })
			l.starts.Failed(knd, errors.New("the group does not need it any more"))
			l.starts.Failed(knd, errors.New("twice"))
			l.over(2*time.Second, "not need it", "queue", "create")
		})
	})
	t.Run("one that goes away while it is pending has failed", func(t *testing.T) {
		live(t, func(l *life) {
			l.launch(made(l))
			l.becomes(fleet.Deleting, false)
			l.becomes(fleet.Deleted, false)
			l.over(2*time.Second, "the instance is deleting", "queue", "create")
		})
	})
	t.Run("one whose record is gone has failed", func(t *testing.T) {
		live(t, func(l *life) {
			l.launch(made(l))
			l.starts.Changed(t.Context(), fleet.Instance{ID: knd}, false)
			l.over(2*time.Second, "record", "queue", "create")
		})
	})
	t.Run("one that was begun by others", func(t *testing.T) {
		live(t, func(l *life) {
			l.becomes(fleet.Pending, false)
			time.Sleep(time.Minute)
			l.launch(made(l))
			l.becomes(fleet.Running, true)
			l.over(62*time.Second, "", "queue", "create", "boot", "become ready")
			if about := l.got.Named("start instance")[0].Attributes; about["nstance.reason"] != "scale-up" {
				t.Errorf("it is said to be %v", about)
			}
		})
	})
	t.Run("an attempt that comes late begins no other", func(t *testing.T) {
		live(t, func(l *life) {
			l.launch(made(l))
			l.becomes(fleet.Running, true)
			l.launch(func() error { return nil })
			l.over(2*time.Second, "", "queue", "create", "boot", "become ready")
		})
	})
	t.Run("what is followed is bounded", func(t *testing.T) {
		live(t, func(l *life) {
			pending := func(id fleet.InstanceID) (fleet.Instance, bool) {
				return fleet.Instance{ID: id, Phase: fleet.Pending}, true
			}
			for n := range 20_000 {
				l.starts.Pending(fleet.InstanceID(fmt.Sprint("other", n)), pending)
			}
			if l.launch(made(l)); l.starts.Follows(knd) || len(l.got.Of(tracing.InstanceTrace(string(knd)))) != 0 {
				t.Error("one more is followed, or has parts")
			}
		})
	})
}
