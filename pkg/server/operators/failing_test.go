package operators_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func failingOf(g *nstancev1.GroupStatus) *nstancev1.Condition {
	for _, c := range g.GetConditions() {
		if c.GetType() == "CreatesFailing" {
			return c
		}
	}
	return nil
}

// create returns a provider's message on the n-th create, each of another instance.
func create(t *testing.T, n int) string {
	t.Helper()
	id, err := fleet.NewID("knd", time.Unix(1e9, 0), strings.NewReader(strings.Repeat(fmt.Sprint(n), 100)))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("create (twice) instance %s", id)
}

// TestCreatesFailing: a group reports how its creates fail, at size too. Watches are told when
// that starts, when the provider's message changes, and when it is over; not for each failed
// create.
func TestCreatesFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		web := f.group("default", "web", 0)
		w := f.watchGroups("default")
		same(t, told(w.take()), "web:0/0", "end")
		since := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		failing := fleet.CreatesFailing{
			Since: since, Failures: 2, Reason: "ProviderError", Message: create(t, 2) + ": no such image ami-1", Next: since.Add(time.Minute),
		}
		tell := func() []*nstancev1.WatchGroupsResponse {
			f.locked(func() { f.failing[web] = failing })
			f.watches.Changed(web, "")
			time.Sleep(time.Second)
			return w.take()
		}
		begun := tell()
		if len(begun) != 1 {
			t.Fatalf("told %v", begun)
		}
		want := create(t, 2) + ": no such image ami-1 (2 creates failed since 2026-11-22T12:00:00Z, the next is due at 2026-11-22T12:01:00Z)"
		if c := failingOf(begun[0].GetGroup()); c.GetStatus() != "True" || c.GetReason() != "ProviderError" || c.GetMessage() != want {
			t.Errorf("the condition is %v", c)
		}
		for range 10 {
			failing.Failures++
			failing.Message = create(t, failing.Failures) + ": no such image ami-1"
			failing.Next = failing.Next.Add(5 * time.Minute)
			if more := tell(); len(more) > 0 {
				t.Errorf("told of one more failure: %v", more)
			}
		}
		failing.Next = time.Time{}
		if more := tell(); len(more) > 0 {
			t.Errorf("told of a try: %v", more)
		}
		late := f.watchGroups("default").take()
		if c := failingOf(late[0].GetGroup()); !strings.Contains(c.GetMessage(), "12 creates failed") ||
			!strings.HasSuffix(c.GetMessage(), "the outcome of the next one is pending)") {
			t.Errorf("a late watcher is told %v", c)
		}
		failing.Message = "create: you are not allowed to"
		if other := tell(); len(other) != 1 || !strings.HasPrefix(failingOf(other[0].GetGroup()).GetMessage(), failing.Message) {
			t.Errorf("told %v when it failed otherwise", other)
		}
		f.locked(func() { delete(f.failing, web) })
		f.watches.Changed(web, "")
		time.Sleep(time.Second)
		if over := w.take(); len(over) != 1 || failingOf(over[0].GetGroup()) != nil {
			t.Errorf("told %v when it was over", over)
		}
	})
}
