package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/proto/nstance/v1"
)

// TestRefusedDeletesLast: a new watch receives each delete that the provider refuses
// permanently, beside other problems of the group, and none whose machine is gone.
func TestRefusedDeletesLast(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.awaitSize("web", 2)
		s.world.FailNext(fake.OpDelete, 1_000_000, fake.Fault{Err: fmt.Errorf("no right to delete: %w", provider.ErrUnauthorized)})
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(0))}); err != nil {
			t.Fatal(err)
		}
		refused := func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == problems.ReasonDeleteRefused && e.GetGroup() == "web" && strings.Contains(e.GetMessage(), "no right")
		}
		watch := p.watchErrors("default")
		one, _ := watch.next("one is told of", refused)
		other, _ := watch.next("the other is told of", refused)
		if one.GetInstanceId() == other.GetInstanceId() {
			t.Errorf("told twice of %s", one.GetInstanceId())
		}
		// Another problem of the group, and its end, hide neither.
		s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: provider.ErrQuota})
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		watch.next("no room", func(e *nstancev1.WatchErrorsResponse) bool { return e.GetReason() == problems.ReasonQuota })
		told := map[string]bool{}
		later := p.watchErrors("default")
		for range 2 {
			e, _ := later.next("what lasts", refused)
			told[e.GetInstanceId()] = true
		}
		if !told[one.GetInstanceId()] || !told[other.GetInstanceId()] {
			t.Errorf("told of %v", told)
		}
		s.world.Mend()
		p.awaitSize("web", 1)
		time.Sleep(6 * time.Minute) // a delete that has been refused for long is retried every five minutes
		eventually(t, "both are gone", func() error {
			if n := len(s.living()); n != 1 {
				return fmt.Errorf("%d live", n)
			}
			return nil
		})
		ended := map[string]bool{}
		for range 2 {
			e, _ := watch.next("it is over", func(e *nstancev1.WatchErrorsResponse) bool {
				return e.GetReason() == problems.ReasonDeleteRefused && e.GetOver()
			})
			ended[e.GetInstanceId()] = true
		}
		if !ended[one.GetInstanceId()] || !ended[other.GetInstanceId()] {
			t.Errorf("told of the end of %v", ended)
		}
		if told := p.watchErrors("default").quiet(); len(told) > 0 {
			t.Errorf("still told %v", told)
		}
	})
}

// TestThrottledShardSaysSo: a waiting group reports why, with the provider's message only for
// the administrator.
func TestThrottledShardSaysSo(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		s.world.FailNext(fake.OpCreate, 1_000_000, fake.Fault{Err: fmt.Errorf("request limit of account 17: %w", provider.ErrThrottled)})
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the group tells", func() error { return p.troubled("account 17") })
		watch := p.watchErrors("default")
		e, _ := watch.next("it lasts", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == problems.ReasonThrottled
		})
		if e.GetGroup() != "" || e.GetInstanceId() != "" {
			t.Errorf("told %v", e)
		}
		if told := p.watchErrors("prod").quiet(); len(told) > 0 {
			t.Errorf("another tenant is told %v", told)
		}
		s.world.Mend()
		p.awaitSize("web", 3)
		time.Sleep(2 * time.Minute)
		watch.next("it is over", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == problems.ReasonThrottled && e.GetOver()
		})
		if told := p.watchErrors("default").quiet(); len(told) > 0 {
			t.Errorf("still told %v", told)
		}
	})
}
