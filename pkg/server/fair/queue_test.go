package fair_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/fair"
)

// create is a create of a group, written "tenant/group"; "!" marks an immediate one, "?" a probe.
type create string

func (c create) Turn() fair.Turn {
	tenant, name, _ := strings.Cut(strings.TrimRight(string(c), "!?"), "/")
	return fair.Turn{
		Group:     fleet.GroupKey{Tenant: tenant, Name: name},
		Immediate: strings.HasSuffix(string(c), "!"), Probe: strings.HasSuffix(string(c), "?"),
	}
}

// accepting is a provider that accepts any number of creates, or few per second.
type accepting float64

func (a accepting) Changes() float64                              { return float64(a) }
func (a accepting) ClaimCreate(time.Time) (at time.Time, ok bool) { return time.Time{}, true }

// queued returns a queue with creates, given in the order in which their groups were decided.
func queued(r fair.Rate, creates ...string) *fair.Queue[create] {
	q := fair.New[create](r)
	for _, group := range creates {
		var all []create
		for one := range strings.FieldsSeq(group) {
			all = append(all, create(one))
		}
		q.Set(all[0].Turn().Group, all)
	}
	return q
}

func TestOrder(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, c := range map[string]struct {
		slots int
		queue []string
		want  string
	}{
		"groups of a tenant take turns":        {9, []string{"a/x a/x a/x", "a/y a/y"}, "a/x a/y a/x a/y a/x"},
		"so do tenants":                        {9, []string{"a/x a/x", "a/y a/y", "b/z b/z"}, "a/x b/z a/y b/z a/x a/y"},
		"immediate ones come first":            {9, []string{"a/x a/x", "a/y a/y!"}, "a/y! a/x a/y a/x"},
		"but not before another tenant":        {9, []string{"a/x a/x!  a/x!", "b/z"}, "a/x! b/z a/x! a/x"},
		"a group has one probe at a time":      {30, []string{"a/x? a/x?", "a/y"}, "a/x? a/y"},
		"and all of them a tenth of the slots": {30, []string{"a/u?", "a/v?", "a/w?", "a/x?", "b/z"}, "a/u? b/z a/v? a/w?"},
		"no more than there are slots":         {2, []string{"a/x a/x a/x", "b/z"}, "a/x b/z"},
	} {
		q := queued(fair.Rate{Concurrency: c.slots}, c.queue...)
		var got []string
		for {
			x, ok, _ := q.Next(now, accepting(0))
			if !ok {
				break
			}
			q.Began(x)
			got = append(got, string(x))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}

// TestATenantWithItsShareWaits: a tenant whose creates occupy its share of the slots is behind one
// that has fewer.
func TestATenantWithItsShareWaits(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := queued(fair.Rate{Concurrency: 4}, "a/x a/x a/x a/x")
	var began []create
	for range 3 {
		x, _, _ := q.Next(now, accepting(0))
		q.Began(x)
		began = append(began, x)
	}
	q.Set(fleet.GroupKey{Tenant: "b", Name: "z"}, []create{"b/z", "b/z"})
	for n, want := range []create{"b/z", "b/z", "a/x"} {
		x, ok, _ := q.Next(now, accepting(0))
		if !ok || x != want {
			t.Fatalf("create %d is %q, want %q", n, x, want)
		}
		q.Began(x)
		if n < len(began)-1 {
			q.Ended(began[n])
		}
		if n == 1 {
			q.Ended(began[2])
		}
	}
}

func TestRate(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	next := func(q *fair.Queue[create], p accepting, at time.Time) (x create, again time.Time) {
		x, _, again = q.Next(at, p)
		return x, again
	}
	q := queued(fair.Rate{PerSecond: 2, Burst: 1, Concurrency: 20}, "a/x a/x a/x")
	if x, _ := next(q, 0, now); x != "a/x" {
		t.Fatalf("the first is %q", x)
	}
	if x, again := next(q, 0, now); x != "" || !again.Equal(now.Add(500*time.Millisecond)) {
		t.Errorf("%q, again at %s, want none for half a second", x, again)
	}
	if x, _ := next(q, 0, now.Add(500*time.Millisecond)); x != "a/x" {
		t.Errorf("then %q", x)
	}
	q.Retune(fair.Rate{Concurrency: 20})
	if x, again := next(q, 0, now); x != "" || !again.IsZero() {
		t.Errorf("%q is left after another rate was set", x)
	}

	probes := queued(fair.Rate{PerSecond: 10, Burst: 10, Concurrency: 20}, "a/x?", "a/y?")
	if x, _ := next(probes, 0, now); x != "a/x?" {
		t.Fatalf("the first probe is %q", x)
	}
	if x, again := next(probes, 0, now); x != "" || !again.Equal(now.Add(time.Second)) {
		t.Errorf("%q, again at %s, want a tenth of the rate", x, again)
	}
	slow := queued(fair.Rate{PerSecond: 10, Burst: 10, Concurrency: 20}, "a/x?", "a/y?")
	next(slow, 5, now)
	if x, again := next(slow, 5, now); x != "" || !again.Equal(now.Add(2*time.Second)) {
		t.Errorf("%q, again at %s, want a tenth of what the provider accepts", x, again)
	}
}
