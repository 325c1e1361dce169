package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// abort aborts the rollout of a group.
func (p *process) abort(group string) (*nstancev1.GroupStatus, error) {
	resp, err := p.operator("default").AbortRollout(within(p.t), &nstancev1.AbortRolloutRequest{Key: group})
	return resp.GetGroup(), err
}

// aborts aborts the rollout of a group, which must succeed.
func (p *process) aborts(group string) *nstancev1.GroupStatus {
	p.t.Helper()
	g, err := p.abort(group)
	if err != nil || condition(g, "RolloutAborted") == nil {
		p.t.Fatalf("aborted: %v, %v", g, err)
	}
	return g
}

// stay expects these machines, and no delete of any since the calls were forgotten.
func (s *site) stay(what string, machines []fleet.InstanceID) {
	s.t.Helper()
	if now := s.living(); !slices.Equal(now, machines) || len(s.world.Calls(fake.OpDelete)) > 0 {
		s.t.Errorf("%s: machines %v became %v, deletes: %v", what, machines, now, s.world.Calls(fake.OpDelete))
	}
}

// rollingOut is a shard with four machines, of which one has just been replaced for a new definition.
func rollingOut(t *testing.T, edits ...func(*site)) (s *site, p *process, stay []fleet.InstanceID) {
	t.Helper()
	s, p = running(t, append(edits, calm)...)
	p.scale(4)
	p.awaitSize("web", 4)
	before := s.living()
	s.retyped()
	p.refreshes(updated)
	p.awaitUpToDate("web", 1)
	for _, id := range s.runs() {
		if slices.Contains(before, id) {
			stay = append(stay, id)
		}
	}
	return s, p, stay
}

// builtAs returns the instance types of the living machines.
func (s *site) builtAs() (types []string) {
	s.t.Helper()
	for _, id := range s.living() {
		spec, _ := s.world.Spec(id)
		types = append(types, spec.InstanceType)
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// TestRolloutAborted: after an abort, the machines of the definition before stay, and those of the new one
// are replaced, under this leader and the next. A resume changes nothing of that; a retry begins it again.
func TestRolloutAborted(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, stay := rollingOut(t)
		g := p.aborts("web")
		if g.GetInstanceType() != "other" || g.GetUpToDateSize() < 3 {
			t.Errorf("web is %v", g)
		}
		p.awaitUpToDate("web", 4)
		p.awaitSize("web", 4)
		kept := s.living()
		if built := s.builtAs(); !slices.Equal(built, []string{""}) {
			t.Errorf("machines are of types %q", built)
		}
		s.world.ForgetCalls()
		for _, id := range stay {
			if !slices.Contains(kept, id) {
				t.Errorf("%s is gone: machines are %v", id, kept)
			}
		}
		if again, err := p.abort("web"); err != nil || again.GetEtag() != s.mustGroup(p, "web").GetEtag() {
			t.Errorf("aborted again: %v, %v", again, err)
		}
		p.refreshes(unchanged)
		p.ends()
		p = s.successor()
		time.Sleep(10 * time.Minute)
		s.stay("after a takeover", kept)
		s.world.Kill(kept[0])
		p.awaitUpToDate("web", 4)
		if c := condition(s.mustGroup(p, "web"), "RolloutAborted"); !strings.Contains(c.GetMessage(), "0 of 4 instances have another one") {
			t.Errorf("web reports %v", c)
		}
		p.pauses("web", false)
		p.refreshes(unchanged)
		time.Sleep(10 * time.Minute)
		if g := s.mustGroup(p, "web"); g.GetUpToDateSize() != 4 || condition(g, "RolloutAborted") == nil {
			t.Errorf("web is %v", g)
		}
		if _, err := p.operator("default").RetryRollout(within(t), &nstancev1.RetryRolloutRequest{Key: "web"}); err != nil {
			t.Fatal(err)
		}
		p.awaitUpToDate("web", 1)
		p.awaitUpToDate("web", 4)
		if g := s.mustGroup(p, "web"); condition(g, "RolloutAborted") != nil {
			t.Errorf("web reports %v", g)
		}
		if built := s.builtAs(); !slices.Equal(built, []string{"other"}) {
			t.Errorf("machines are of types %q", built)
		}
	})
}

// TestRolloutAbortedByALaterLeader: a later leader knows the config before the present one, also if a config
// that builds the same machines was accepted since.
func TestRolloutAbortedByALaterLeader(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, calm)
		machines := s.living()
		s.world.FailNext(fake.OpCreate, 1000, fake.Fault{Err: fmt.Errorf("%w: no more of type other", provider.ErrQuota)})
		s.retyped()
		p.refreshes(updated)
		p.ends()
		p = s.successor()
		s.put(configAt, s.get(configAt)+"// as before\n")
		p.refreshes(updated)
		p.ends()
		p = s.start(named("c")).awaitLeading()
		var g *nstancev1.GroupStatus
		eventually(t, "it can be aborted", func() (err error) { g, err = p.abort("web"); return err })
		if condition(g, "RolloutAborted") == nil {
			t.Errorf("web is %v", g)
		}
		s.world.Mend()
		s.world.ForgetCalls()
		time.Sleep(10 * time.Minute)
		s.stay("after the abort", machines)
	})
}

// TestRolloutAbortedFailing: a group whose new machines can't be made keeps all that it has, and its creates
// don't fail any more.
func TestRolloutAbortedFailing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, calm)
		machines := s.living()
		s.world.FailNext(fake.OpCreate, 1000, fake.Fault{Err: fmt.Errorf("%w: no more of type other", provider.ErrQuota)})
		s.retyped()
		p.refreshes(updated)
		eventually(t, "the group tells", func() error { return p.troubled("creates failed since") })
		p.aborts("web")
		time.Sleep(10 * time.Minute)
		if g := s.mustGroup(p, "web"); condition(g, "CreatesFailing") != nil || condition(g, "Degraded") != nil || g.GetUpToDateSize() != 2 {
			t.Errorf("web is %v", g)
		}
		s.stay("after the abort", machines)
	})
}

// TestRolloutAbortedUntilAnotherConfig: a config that asks for something else than what was aborted is rolled
// out. Until that is done, the one that was aborted is still refused; then it is asked for anew.
func TestRolloutAbortedUntilAnotherConfig(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, _ := rollingOut(t)
		p.aborts("web")
		p.awaitUpToDate("web", 4)
		p.awaitSize("web", 4)
		machines := s.living()
		s.world.ForgetCalls()
		aborted := s.get(configAt)
		s.world.FailNext(fake.OpCreate, 1000, fake.Fault{Err: fmt.Errorf("%w: there is no such type", provider.ErrQuota)})
		s.put(configAt, strings.Replace(aborted, `"instance_type": "other"`, `"instance_type": "othr"`, 1))
		p.refreshes(updated)
		eventually(t, "the group tells", func() error { return p.troubled("creates failed since") })
		s.put(configAt, aborted)
		p.refreshes(updated)
		time.Sleep(10 * time.Minute)
		if g := s.mustGroup(p, "web"); condition(g, "RolloutAborted") == nil {
			t.Errorf("after a mistake: %v", g)
		}
		s.stay("after a mistake", machines)

		s.world.Mend()
		s.put(configAt, strings.Replace(aborted, `"instance_type": "other"`, `"instance_type": "mended"`, 1))
		p.refreshes(updated)
		p.awaitUpToDate("web", 1)
		p.awaitUpToDate("web", 4)
		time.Sleep(10 * time.Minute)
		_, err := p.abort("web")
		refused(t, err, codes.FailedPrecondition, "there is no rollout to abort")
		over := slices.DeleteFunc(p.events(&nstancev1.ListEventsRequest{Group: "web"}), func(e *nstancev1.Event) bool {
			return e.GetKind() != "abort-over"
		})
		if len(over) != 1 || over[0].GetActor() != "rule:rotation" || !strings.Contains(over[0].GetMessage(), "is no longer refused") {
			t.Errorf("the end of the abort is told by %v", over)
		}
		s.put(configAt, aborted)
		p.refreshes(updated)
		p.awaitUpToDate("web", 1)
		p.awaitUpToDate("web", 4)
		if g := s.mustGroup(p, "web"); condition(g, "RolloutAborted") != nil || g.GetInstanceType() != "other" {
			t.Errorf("web is %v", g)
		}
	})
}

// TestRolloutAbortedAndLost: an abort whose record disappears replaces no machine.
func TestRolloutAbortedAndLost(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, _ := rollingOut(t)
		p.aborts("web")
		p.awaitUpToDate("web", 4)
		p.awaitSize("web", 4)
		machines := s.living()
		s.world.ForgetCalls()
		for _, key := range s.keys("groups/") {
			s.remove(key)
		}
		p.ends()
		p = s.successor()
		time.Sleep(time.Hour)
		s.keptAll("without the record", machines)
		if c := condition(s.mustGroup(p, "web"), "GroupRecordMissing"); c == nil {
			t.Errorf("web is %v", s.mustGroup(p, "web"))
		}
	})
}

// TestRolloutNotAborted: without a rollout, or with one from a definition that is not known, nothing is
// changed, and the answer says why.
func TestRolloutNotAborted(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, _ := rollingOut(t)
		_, err := p.operator("default").AbortRollout(within(t), &nstancev1.AbortRolloutRequest{Key: "web", IfEtag: ptr("1-another")})
		refused(t, err, codes.Aborted, "if_etag")
		s.world.FailNext(fake.OpCreate, 1000, fake.Fault{Err: fmt.Errorf("%w: there is no such type", provider.ErrQuota)})
		header, text, _ := strings.Cut(s.get(appliedAt), "\n")
		s.put(appliedAt, strings.Replace(header, `"before":"`, `"before":"AAAA`, 1)+"\n"+text)
		p.ends()
		p = s.successor()
		eventually(t, "all machines are known", func() error {
			if _, err = p.abort("web"); status.Code(err) == codes.Unavailable {
				return err
			}
			return nil
		})
		refused(t, err, codes.FailedPrecondition, "is not known any more")
		if n := p.log.count("can't read the config before the present one"); n != 1 {
			t.Errorf("told %d times", n)
		}
		s.world.Mend()
		p.awaitUpToDate("web", 4)
		_, err = p.abort("web")
		refused(t, err, codes.FailedPrecondition, "there is no rollout to abort")
		_, err = p.abort("other")
		refused(t, err, codes.NotFound, "no such group")
	})
}

// TestRolloutAbortWaits: what is to be kept can't be known before the provider has listed the machines, and
// on-demand instances, which no rollout replaces, don't say it.
func TestRolloutAbortWaits(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, _ := rollingOut(t)
		p.ends()
		s.world.FailNext(fake.OpList, 1000, fake.Fault{Err: fake.ErrLost})
		p = s.successor()
		_, err := p.abort("web")
		refused(t, err, codes.Unavailable, "not all machines are known")
		if g := s.mustGroup(p, "web"); condition(g, "RolloutAborted") != nil {
			t.Errorf("web is %v", g)
		}
		s.world.Mend()
		p.awaitUpToDate("web", 4)
		p.awaitSize("web", 4)
		p.created("k")
		s.put(configAt, strings.Replace(s.get(configAt), `"instance_type": "other"`, `"instance_type": "third"`, 1))
		p.refreshes(updated)
		p.awaitUpToDate("web", 1)
		p.awaitUpToDate("web", 4)
		_, err = p.abort("web")
		refused(t, err, codes.FailedPrecondition, "there is no rollout to abort")
	})
}

// TestRolloutAbortedOfAManagedGroup: whatever manages a group manages it after an abort, and what it asks for
// again does not end it.
func TestRolloutAbortedOfAManagedGroup(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, calm)
		upsert := func(kind string) {
			t.Helper()
			req := &nstancev1.UpsertGroupRequest{Key: "web", InstanceType: &kind, Size: ptr(int32(2)), Manager: "pool web"}
			if _, err := p.upsert(req); err != nil {
				t.Fatal(err)
			}
		}
		upsert("first")
		p.awaitUpToDate("web", 2)
		p.awaitSize("web", 2)
		upsert("second")
		p.awaitUpToDate("web", 1)
		p.aborts("web")
		p.awaitUpToDate("web", 2)
		p.awaitSize("web", 2)
		machines := s.living()
		s.world.ForgetCalls()
		upsert("second")
		time.Sleep(10 * time.Minute)
		s.stay("after the abort", machines)
		if g := s.mustGroup(p, "web"); g.GetManager() != "pool web" || g.GetInstanceType() != "second" || condition(g, "RolloutAborted") == nil {
			t.Errorf("web is %v", g)
		}
		upsert("third")
		p.awaitUpToDate("web", 1)
		p.awaitUpToDate("web", 2)
	})
}
