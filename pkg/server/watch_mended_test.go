package server_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/server/leader"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestMendedGroupIsTold: what was wrong with the entry of a group is over when the group is
// defined anew.
func TestMendedGroupIsTold(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.written()
		errs := p.watchErrors("default")
		s.put(groupsAt, `{ "epoch": 0, "rev": 99, "writer": "a person", "groups": { "own": { "template": "nope", "size": 0 } } }`)
		time.Sleep(2 * time.Minute)
		errs.next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonGroups && e.GetGroup() == "own" && !e.GetOver()
		})
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "own", Template: ptr("knd")}); err != nil {
			t.Fatal(err)
		}
		errs.next("it is over", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonGroups && e.GetGroup() == "own" && e.GetOver()
		})
	})
}
