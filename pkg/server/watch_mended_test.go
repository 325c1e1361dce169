package server_test

import (
	"testing"

	"github.com/nstance/nstance/pkg/server/groups"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestMendedGroupIsTold: a group's problem is over when the group is redefined.
func TestMendedGroupIsTold(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.written()
		errs := p.watchErrors("default")
		s.put(groupAt("default", "own"), `{ "epoch": 0, "rev": 99, "writer": "by hand", "template": "nope", "size": 0 }`)
		p.idle()
		errs.next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == groups.ReasonInvalid && e.GetGroup() == "own" && !e.GetOver()
		})
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "own", Template: ptr("knd")}); err != nil {
			t.Fatal(err)
		}
		errs.next("it is over", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == groups.ReasonInvalid && e.GetGroup() == "own" && e.GetOver()
		})
	})
}
