package server_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const pool = "NstanceShardGroup nstance/web--dev-1"

// TestManagedGroup: a group that something manages is changed, reset and deleted by that alone, or by force, under
// every leader. A refused change leaves it as it is; every caller may pause its rollout.
func TestManagedGroup(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.set(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3)), Manager: pool})
		p.awaitSize("web", 3)
		p.ends()
		p = s.successor()
		p.awaitSize("web", 3)
		etag := s.mustGroup(p, "web").GetEtag()
		_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))})
		managed(t, err)
		if text := s.get(webAt); !strings.Contains(text, `"epoch":2`) { // so that no late write makes the refusal untrue
			t.Errorf("refused, its record is %s", text)
		}
		p.set(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3)), Manager: pool})
		_, err = p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1)), Manager: "another"})
		managed(t, err)
		_, err = p.operator("default").ResetGroup(within(t), &nstancev1.ResetGroupRequest{Key: "web"})
		managed(t, err)
		if g := s.mustGroup(p, "web"); g.GetEtag() != etag || g.GetManager() != pool || g.GetSize() != 3 {
			t.Errorf("web is %v", g)
		}
		p.pauses("web", true)
		if g := s.mustGroup(p, "web"); g.GetManager() != pool {
			t.Errorf("paused, web is %v", g)
		}
		req := &nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(2)), Force: true}
		forced, err := p.operator("default").UpsertGroup(within(t), req)
		if err != nil || forced.GetManagedBefore() != pool || forced.GetGroup().GetManager() != "" {
			t.Errorf("forced, web is %v: %v", forced, err)
		}
		if text := p.log.String(); !strings.Contains(text, `manager="`+pool+` -> "`) {
			t.Errorf("the log has no change of the manager:\n%s", text)
		}
		p.set(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))})
		p.awaitSize("web", 1)
	})
}

// TestManagedGroupDeleted: a managed group is deleted by its manager, or by force.
func TestManagedGroupDeleted(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		for _, by := range []*nstancev1.DeleteGroupRequest{{Manager: pool}, {Force: true}} {
			p.set(&nstancev1.UpsertGroupRequest{Key: "jobs", Template: ptr("knd"), Size: ptr(int32(0)), Manager: pool})
			_, err := p.operator("default").DeleteGroup(within(t), &nstancev1.DeleteGroupRequest{Key: "jobs"})
			managed(t, err)
			if g := s.mustGroup(p, "jobs"); condition(g, "Removed") != nil {
				t.Errorf("jobs is %v", g)
			}
			by.Key = "jobs"
			if _, err := p.operator("default").DeleteGroup(within(t), by); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			if g, err := p.group("jobs"); err == nil && condition(g, "Removed") == nil {
				t.Errorf("jobs is %v", g)
			}
		}
	})
}

// managed checks that a change was refused because something else manages the group.
func managed(t *testing.T, err error) {
	t.Helper()
	refused(t, err, codes.FailedPrecondition, "nothing was changed", "managed by "+pool)
	if all := rpc.Failures(err); len(all) != 1 || all[0].Type != rpc.GroupManaged {
		t.Errorf("refused for %v", all)
	}
}
