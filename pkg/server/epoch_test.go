package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/election"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	later   = 100000
	tooHigh = "9007199254740993" // 2^53 + 1
)

// raised replaces the epoch in an object's text.
func (s *site) raised(key, epoch string) {
	s.t.Helper()
	text := s.get(key)
	for _, space := range []string{"", " "} {
		if _, rest, ok := strings.Cut(text, `"epoch":`+space); ok && rest[0] != ' ' {
			digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
			text = strings.Replace(text, `"epoch":`+space+rest[:digits], `"epoch":`+space+epoch, 1)
		}
	}
	if !strings.Contains(text, epoch) {
		s.t.Fatalf("no epoch in %s", text)
	}
	s.put(key, text)
}

// leadsAbove waits until the server has become ready so many times in total, now above the later
// epoch, and fails if that took more than two terms.
func (p *process) leadsAbove(acts int) {
	p.t.Helper()
	eventually(p.t, "it leads above the epoch that it met", func() error {
		if epoch := p.site.leader().Epoch; epoch <= later {
			return fmt.Errorf("epoch %d", epoch)
		}
		if p.log.count("ready to act") < acts {
			return fmt.Errorf("it does not act")
		}
		return nil
	})
	if n := p.log.count("leading"); n != 2 {
		p.t.Errorf("%d terms, want 2", n)
	}
}

// TestLaterEpochInTheGroups: an epoch in an object neither stops the shard nor changes its
// leader: the election record decides who leads.
func TestLaterEpochInTheGroups(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		q := s.start(named("b"))
		q.awaitPeer()
		p.scale(2)
		s.raised(webAt, fmt.Sprint(later))
		if _, err := p.refresh(); err != nil { // nothing reads the groups
			t.Fatal(err)
		}
		_, _ = p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(4))}) // reads it, and fails
		p.leadsAbove(2)
		p.takesAgents()
		p.scale(3)
		p.awaitSize("web", 3)
		if n := q.log.count("leading"); n != 0 {
			t.Errorf("the standby led %d times", n)
		}
	})
}

// TestLaterEpochAtATakeover: the next leader finds it while loading.
func TestLaterEpochAtATakeover(t *testing.T) {
	for name, key := range map[string]func(*site) string{
		"groups":           func(*site) string { return webAt },
		"applied":          func(*site) string { return appliedAt },
		"an instance":      func(s *site) string { return s.keys("instance/")[0] },
		"a spoiled record": func(s *site) string { return s.keys("instance/")[1] },
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t)
			p.scale(2)
			p.ends()
			s.raised(key(s), fmt.Sprint(later))
			if name == "a spoiled record" {
				s.put(key(s), strings.Replace(s.get(key(s)), `"phase":"running"`, `"phase":"asleep"`, 1))
			}
			q := s.start(named("b"))
			q.leadsAbove(1)
			q.takesAgents()
			q.scale(3)
			eventually(t, "there are three machines", func() error {
				if n := len(s.living()); n != 3 {
					return fmt.Errorf("%d live", n)
				}
				return nil
			})
		}))
	}
}

func (p *process) remove(id fleet.InstanceID) error {
	target := &nstancev1.DeleteInstanceRequest_Id{Id: string(id)}
	_, err := p.operator("default").DeleteInstance(within(p.t), &nstancev1.DeleteInstanceRequest{Target: target})
	return err
}

// TestLaterEpochInARecord: it is found only when the record is changed.
func TestLaterEpochInARecord(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		id := s.living()[0]
		s.raised("instance/"+shardID+"/default."+id.StorageKey()+".json", fmt.Sprint(later))
		for range 2 { // the first conflicts and reads the record, the next knows it
			_ = p.remove(id)
		}
		p.leadsAbove(2)
		p.takesAgents()
		if err := p.remove(id); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(id, nstancev1.InstancePhase_INSTANCE_PHASE_DELETED)
		p.awaitSize("web", 2)
	})
}

// TestEpochThatLeavesNoRoom: an object with such an epoch is unreadable. It is reported, and the
// shard keeps the last known state.
func TestEpochThatLeavesNoRoom(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.scale(3)
		p.awaitSize("web", 3)
		s.raised(webAt, tooHigh)
		for _, r := range s.records() {
			if r.Phase == fleet.Running {
				s.raised("instance/"+shardID+"/default."+r.ID.StorageKey()+".json", tooHigh)
				break
			}
		}
		s.raised(appliedAt, tooHigh)
		p.scaleFails(webAt)
		s.replace(`"web": { "template": "knd", "size": 2 }`, `"other": { "template": "knd", "size": 0 }`)
		_, err := p.refresh()
		if err == nil || !strings.Contains(err.Error(), webAt) || !strings.Contains(err.Error(), tooHigh) {
			t.Errorf("refreshed: %v", err)
		}
		if g := s.mustGroup(p, "web"); g.GetSize() != 3 || g.GetActualSize() != 3 {
			t.Errorf("web is %v", g)
		}
		if e := s.leader().Epoch; e != 1 || len(s.living()) != 3 {
			t.Errorf("epoch %d, %v live", e, s.living())
		}
		// The accepted config is overwritten once the record can be read.
		s.remove(webAt)
		p.refreshes(updated)
		if s.accepted() != s.get(configAt) || strings.Contains(s.get(appliedAt), tooHigh) {
			t.Errorf("applied is %s", s.get(appliedAt))
		}
		// A record that was removed externally is held, so web outlives its definition by it.
		if g := s.mustGroup(p, "web"); g.GetSize() != 3 || g.GetIsStatic() || len(s.living()) != 3 {
			t.Errorf("web is %v, %v live", g, s.living())
		}
	})
}

func (p *process) scaleFails(words string) {
	p.t.Helper()
	_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))})
	if err == nil || !strings.Contains(err.Error(), words) {
		p.t.Errorf("scaled: %v", err)
	}
}

// TestAcceptedConfigThatLeavesNoRoom: if config/ is invalid, too, there is no config to start
// with, and both are reported.
func TestAcceptedConfigThatLeavesNoRoom(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.ends()
		s.raised(appliedAt, tooHigh)
		s.put(configAt, "{")
		q := s.start(named("b"))
		q.await("can't start yet")
		if why := q.log.attr("can't start yet", "error"); !strings.Contains(why, appliedAt+": epoch: "+tooHigh) {
			t.Errorf("it says %s", why)
		}
	})
}

// TestHighestEpoch: the maximum epoch that a term rises above leaves room for all later terms.
func TestHighestEpoch(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.scale(2)
		p.ends()
		s.raised(webAt, "9007199254740992") // 2^53
		s.raised(s.keys("instance/")[0], "9007199254740992")
		for n, name := range []string{"b", "c", "d"} {
			q := s.start(named(name))
			q.awaitLeading()
			q.takesAgents()
			q.scale(int32(3 + n))
			q.awaitSize("web", int32(3+n))
			q.ends()
		}
		if e := s.leader().Epoch; e < election.MaxEpoch+3 {
			t.Errorf("epoch %d", e)
		}
	})
}
