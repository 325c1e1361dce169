package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestMadeAnewBeforeForgotten: a group that is recreated while the loop is about to forget the
// deleted one is not forgotten.
func TestMadeAnewBeforeForgotten(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		job := func(size int32) {
			if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "job", Template: ptr("knd"), Size: ptr(size)}); err != nil {
				t.Error(err)
			}
		}
		job(0)
		s.store.Set(func(r objecttest.Request) (o objecttest.Outcome) {
			if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "groups/") {
				o.Latency = 500 * time.Millisecond
			}
			return o
		})
		go func() {
			if _, err := p.operator("default").DeleteGroup(within(t), &nstancev1.DeleteGroupRequest{Key: "job"}); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(100 * time.Millisecond)
		job(2) // written after the deletion, and before the loop forgets the group
		time.Sleep(2 * time.Minute)
		if g := s.mustGroup(p, "job"); g.GetSize() != 2 || condition(g, missingGroup) != nil || len(s.belonging("default", "job")) != 2 {
			t.Errorf("job is %v", g)
		}
	})
}
