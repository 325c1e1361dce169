package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// pauses pauses or resumes the rollout of a group.
func (p *process) pauses(group string, paused bool) {
	p.t.Helper()
	g, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: group, RolloutPaused: &paused})
	if err != nil || g.GetRolloutPaused() != paused {
		p.t.Fatalf("paused is %v: %v", g.GetRolloutPaused(), err)
	}
}

// retyped changes the definition of all groups.
func (s *site) retyped() {
	s.t.Helper()
	s.replace(`"arch": "amd64", "subnet_pool": "workers"`, `"arch": "amd64", "instance_type": "other", "subnet_pool": "workers"`)
}

// TestRolloutPaused: while a rollout is paused, a new definition replaces no machine, under this leader
// and the next. One that dies is replaced by the new definition, and so are all others once it is resumed.
func TestRolloutPaused(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, calm)
		machines := s.living()
		p.pauses("web", true)
		s.retyped()
		p.refreshes(updated)
		time.Sleep(10 * time.Minute)
		s.keptAll("while it is paused", machines)
		p.ends()
		p = s.successor()
		time.Sleep(10 * time.Minute)
		s.keptAll("after a takeover", machines)
		g := s.mustGroup(p, "web")
		const outdated = "2 of 2 were made from another definition"
		if c := condition(g, "RolloutPaused"); !strings.Contains(c.GetMessage(), outdated) {
			t.Errorf("web is %v", g)
		}
		preview, err := p.preview([]byte(strings.Replace(s.get(configAt), `"instance_type": "other"`, `"instance_type": "more"`, 1)))
		groups := preview.GetPreview().GetGroups()
		if err != nil || len(groups) != 1 || groups[0].GetReplaced() != 2 || groups[0].GetAtATime() != 0 {
			t.Errorf("the preview is %v: %v", groups, err)
		}

		s.world.Kill(machines[0])
		p.awaitUpToDate("web", 1)
		time.Sleep(10 * time.Minute)
		if now := s.living(); len(now) != 2 || !slices.Contains(now, machines[1]) {
			t.Errorf("machines %v became %v", machines, now)
		}
		p.pauses("web", false)
		p.awaitUpToDate("web", 2)
		p.awaitSize("web", 2)
		if now := s.living(); slices.ContainsFunc(now, func(id fleet.InstanceID) bool { return slices.Contains(machines, id) }) {
			t.Errorf("machines %v became %v", machines, now)
		}
		if c := condition(s.mustGroup(p, "web"), "RolloutPaused"); c != nil {
			t.Errorf("web reports %v", c)
		}
	})
}

// TestRolloutPausedByReset: a reset of the group's overrides resumes its rollout.
func TestRolloutPausedByReset(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, calm)
		p.pauses("web", true)
		s.retyped()
		p.refreshes(updated)
		time.Sleep(10 * time.Minute)
		if g := s.mustGroup(p, "web"); g.GetUpToDateSize() != 0 {
			t.Errorf("before the reset: %v", g)
		}
		p.resets("web")
		p.awaitUpToDate("web", 2)
	})
}

// TestRolloutPausedEndsFailing: a group whose new machines can't be made has no failing creates any more once
// its rollout is paused, and all its machines.
func TestRolloutPausedEndsFailing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, calm)
		machines := s.living()
		s.world.FailNext(fake.OpCreate, 1000, fake.Fault{Err: fmt.Errorf("%w: no more of type other", provider.ErrQuota)})
		s.retyped()
		p.refreshes(updated)
		eventually(t, "the group tells", func() error { return p.troubled("creates failed since") })
		p.pauses("web", true)
		time.Sleep(10 * time.Minute)
		if g := s.mustGroup(p, "web"); condition(g, "CreatesFailing") != nil || condition(g, "Degraded") != nil {
			t.Errorf("web is %v", g)
		}
		if now := s.living(); !slices.Equal(now, machines) {
			t.Errorf("machines %v became %v", machines, now)
		}
	})
}

// awaitUpToDate waits until that many instances of a group are of its present definition.
func (p *process) awaitUpToDate(group string, n int32) {
	p.t.Helper()
	eventually(p.t, "instances of the present definition", func() error {
		g, err := p.group(group)
		if err == nil && g.GetUpToDateSize() != n {
			err = fmt.Errorf("group is %v", g)
		}
		return err
	})
}
