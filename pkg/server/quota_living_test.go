package server_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

// boundedWithDrains is runningWithDrains with a quota of tenant default.
func boundedWithDrains(t *testing.T, quota string) (*site, *process) {
	t.Helper()
	return running(t, replaced(`"default_drain_timeout": "0s"`, `"default_drain_timeout": "1h"`,
		`"tenants": { "prod": {} },`, `"tenants": { "default": { "quota": { `+quota+` } }, "prod": {} },`))
}

func (p *process) resize(key string, size int32) error {
	_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: key, Template: ptr("knd"), Size: &size})
	return err
}

// awaitDraining waits until n instances of a group drain, and returns them.
func (s *site) awaitDraining(key string, n int) (ids []fleet.InstanceID) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%d of %s drain", n, key), func() error {
		ids = nil
		for _, r := range s.records() {
			if r.Group == key && r.Phase == fleet.Draining {
				ids = append(ids, r.ID)
			}
		}
		if len(ids) != n {
			return fmt.Errorf("%d do", len(ids))
		}
		return nil
	})
	return ids
}

// slowRecords delays each write of an instance's record by a second.
func (s *site) slowRecords() {
	s.store.Set(func(q objecttest.Request) objecttest.Outcome {
		if q.Verb == object.VerbPut && strings.HasPrefix(q.Key, "instance/") {
			return objecttest.Outcome{Latency: time.Second}
		}
		return objecttest.Outcome{}
	})
}

// TestWhatLeavesCountsUntilItIsGone: a tenant that removes instances without acknowledging
// their drains gets no more instances than its quota allows, neither at once nor while they
// drain, in any group.
func TestWhatLeavesCountsUntilItIsGone(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := boundedWithDrains(t, `"instances": 4`)
		if err := p.resize("jobs", 2); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("jobs", 2)
		const words = `the quota of tenant "default" is exceeded: instances: at most 4 are allowed, there are 4, and with this `
		const why = ` (live instances: 4, of which leaving: 2; they count until they are gone: wait for that, or acknowledge their drains)`
		s.slowRecords()
		if err := p.resize("jobs", 0); err != nil {
			t.Fatal(err)
		}
		refused(t, p.resize("jobs", 2), codes.ResourceExhausted, words+"6"+why) // no record says yet that they leave
		s.store.Set(nil)
		drains := s.awaitDraining("jobs", 2)
		refused(t, p.resize("jobs", 1), codes.ResourceExhausted, words+"5"+why)
		refused(t, p.resize("more", 1), codes.ResourceExhausted, words+"5"+why)
		refused(t, p.resize("web", 5), codes.ResourceExhausted, words+"7 (the limit is ") // too many even without the leaving ones
		if err := errors.Join(p.resize("web", 2), p.resize("more", 0)); err != nil {
			t.Errorf("what needs no more: %v", err)
		}
		if n := len(s.living()); n != 4 {
			t.Errorf("%d machines, want 4", n)
		}

		if err := p.ack(drains[0]); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(drains[0], isDeleted)
		refused(t, p.resize("jobs", 2), codes.ResourceExhausted, "there are 3, and with this 5", "live instances: 3, of which leaving: 1;")
		if err := p.resize("jobs", 1); err != nil {
			t.Errorf("in place of the one that is gone: %v", err)
		}
		p.awaitSize("jobs", 1)
		if err := p.ack(drains[1]); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(drains[1], isDeleted)
		if err := p.resize("jobs", 2); err != nil {
			t.Errorf("once all are gone: %v", err)
		}
		p.awaitSize("jobs", 2)
	})
}

// TestDeletedGroupCountsUntilItIsGone: the same for a group recreated under its own name.
func TestDeletedGroupCountsUntilItIsGone(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := boundedWithDrains(t, `"instances": 4`)
		if err := p.resize("jobs", 2); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("jobs", 2)
		if _, err := p.operator("default").DeleteGroup(within(t), &nstancev1.DeleteGroupRequest{Key: "jobs"}); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"jobs", "more"} {
			refused(t, p.resize(key, 1), codes.ResourceExhausted, "there are 4, and with this 5", "of which leaving: 2;")
		}
		for _, id := range s.awaitDraining("jobs", 2) {
			if err := p.ack(id); err != nil {
				t.Fatal(err)
			}
		}
		s.awaitEmpty("default", "jobs")
		eventually(t, "there is room for it again", func() error { return p.resize("jobs", 2) })
	})
}

// TestReplacementsNeedNoQuota: surplus instances of a rotation, a requested replacement, or a
// lost machine are never refused; only growth waits.
func TestReplacementsNeedNoQuota(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := boundedWithDrains(t, `"instances": 3`)
		before := s.living()
		change := &nstancev1.UpsertGroupRequest{Key: "web", InstanceType: ptr("large"), Size: ptr(int32(2))}
		if _, err := p.upsert(change); err != nil {
			t.Fatal(err)
		}
		for done := range before {
			drains := s.awaitDraining("web", 1)
			refused(t, p.resize("jobs", 1), codes.ResourceExhausted,
				"at most 3 are allowed, there are 3, and with this 4", "live instances: 3, of which leaving: 1;")
			if _, err := p.upsert(change); err != nil {
				t.Errorf("the same again, %d replaced: %v", done, err)
			}
			if !slices.Contains(before, drains[0]) {
				t.Errorf("%s drains, want one of %v", drains[0], before)
			}
			if err := p.ack(drains[0]); err != nil {
				t.Fatal(err)
			}
			p.awaitPhase(drains[0], isDeleted)
		}
		p.awaitSize("web", 2)
		now := s.living()
		if len(now) != 2 || slices.ContainsFunc(now, func(id fleet.InstanceID) bool { return slices.Contains(before, id) }) {
			t.Fatalf("%v live, want two others than %v", now, before)
		}

		s.world.Kill(now[0])
		if err := p.delete(now[1]); err != nil {
			t.Fatal(err)
		}
		drains := s.awaitDraining("web", 1)
		p.awaitSize("web", 2)
		if drains[0] != now[1] || len(s.living()) != 3 {
			t.Errorf("%v drain, and %v live", drains, s.living())
		}
	})
}

// TestOnDemandOnesCountUntilTheyAreGone: a deleted, draining instance counts for the on-demand
// quota until it is gone.
func TestOnDemandOnesCountUntilTheyAreGone(t *testing.T) {
	simulated(t, func(t *testing.T) {
		_, p := boundedWithDrains(t, `"instances": 2, "on_demand": 1`)
		id := p.created("a")
		p.awaitPhase(id, isRunning)
		if err := p.delete(id); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(id, isDraining)
		_, err := p.create("b")
		refused(t, err, codes.ResourceExhausted, "on_demand: at most 1 are allowed, there are 1, and with this 2",
			"live instances: 1, of which leaving: 1; they count until they are gone: wait for that, or acknowledge their drains")
		if err := p.ack(id); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(id, isDeleted)
		if _, err := p.create("b"); err != nil {
			t.Errorf("once it is gone: %v", err)
		}
	})
}
