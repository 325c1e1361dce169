package server_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

// upsertTogether runs eight concurrent changes of a group, each to another size, and returns the
// size of the one that succeeded. All others are ABORTED.
func (p *process) upsertTogether(req func(size int32) *nstancev1.UpsertGroupRequest) int32 {
	p.t.Helper()
	errs := make([]error, 8)
	var all sync.WaitGroup
	for n := range errs {
		client, ctx := p.operator("default"), within(p.t)
		all.Go(func() { _, errs[n] = client.UpsertGroup(ctx, req(int32(n))) })
	}
	all.Wait()
	won := int32(-1)
	for n, err := range errs {
		switch {
		case err != nil:
			refused(p.t, err, codes.Aborted, "if_etag")
		case won >= 0:
			p.t.Errorf("both %d and %d held", won, n)
		default:
			won = int32(n)
		}
	}
	if won < 0 {
		p.t.Fatalf("none held: %v", errs)
	}
	return won
}

// TestIfETag: of concurrent conditional changes one wins, for static and dynamic groups; a
// change conditional on absence does not change an existing group.
func TestIfETag(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		web, err := p.group("web")
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(9)), IfEtag: ptr("0123")})
		refused(t, err, codes.Aborted, `"0123"`, web.GetEtag())
		_, err = p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(9)), IfEtag: ptr("")})
		refused(t, err, codes.Aborted, "empty", web.GetEtag())
		_, err = p.upsert(&nstancev1.UpsertGroupRequest{Key: "new", Template: ptr("knd"), IfEtag: ptr("0123")})
		refused(t, err, codes.Aborted, `"0123"`, "group new does not exist")
		if err := errors.Join(s.forgotten("default", "web"), s.forgotten("default", "new")); err != nil {
			t.Errorf("refusals wrote more than tombstones: %v", err)
		}

		won := p.upsertTogether(func(size int32) *nstancev1.UpsertGroupRequest {
			return &nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(size + 3), IfEtag: ptr(web.GetEtag())}
		})
		if g, err := p.group("web"); err != nil || g.GetSize() != won+3 || g.GetEtag() == web.GetEtag() {
			t.Errorf("%d won, and the group is %v, %v", won, g, err)
		}
		made := p.upsertTogether(func(size int32) *nstancev1.UpsertGroupRequest {
			return &nstancev1.UpsertGroupRequest{Key: "new", Template: ptr("knd"), Size: ptr(size), IfEtag: ptr("")}
		})
		fresh, err := p.group("new")
		if err != nil || fresh.GetSize() != made {
			t.Fatalf("%d won, and the group is %v, %v", made, fresh, err)
		}
		p.upsertTogether(func(size int32) *nstancev1.UpsertGroupRequest {
			return &nstancev1.UpsertGroupRequest{Key: "new", Size: ptr(size + 10), IfEtag: ptr(fresh.GetEtag())}
		})
		g, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "new", Size: ptr(int32(0))})
		if err != nil || g.GetSize() != 0 {
			t.Errorf("without a condition: %v, %v", g, err)
		}
		if g, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "new", Size: ptr(int32(0)), IfEtag: ptr(g.GetEtag())}); err != nil {
			t.Errorf("with the etag that was answered: %v, %v", g, err)
		}
	})
}

// TestIfETagHoldsOnce: a conditional change that is repeated after a lost reply does not undo
// later changes, even if those restored the group, deleted it, or came from another leader;
// no-op changes do not make it fail.
func TestIfETagHoldsOnce(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		for name, template := range map[string]*string{"web": nil, "own": ptr("knd")} {
			sized := func(p *process, size int32, etag *string) (*nstancev1.GroupStatus, error) {
				return p.upsert(&nstancev1.UpsertGroupRequest{Key: name, Size: ptr(size), Template: template, IfEtag: etag})
			}
			seen := map[string]bool{}
			first, err := sized(p, 2, nil)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := sized(p, 2, nil); err != nil || again.GetEtag() != first.GetEtag() {
				t.Errorf("%s: what changes nothing makes %v of %v, %v", name, again, first, err)
			}
			etag := first.GetEtag()
			for _, size := range []int32{3, 2, 3, 2} {
				g, err := sized(p, size, ptr(etag))
				if err != nil || seen[g.GetEtag()] {
					t.Fatalf("%s: size %d: %v, %v", name, size, g, err)
				}
				seen[etag], etag = true, g.GetEtag()
			}
			_, err = sized(p, 3, ptr(first.GetEtag()))
			refused(t, err, codes.Aborted, "if_etag", first.GetEtag())
		}
		old, err := p.group("own")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.operator("default").DeleteGroup(within(t), &nstancev1.DeleteGroupRequest{Key: "own"}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "own is forgotten", func() error {
			return s.forgotten("default", "own")
		})
		if err := p.shutdown(); err != nil {
			t.Fatal(err)
		}
		q := s.start(named("b")).awaitLeading()
		anew, err := q.upsert(&nstancev1.UpsertGroupRequest{Key: "own", Size: ptr(int32(2)), Template: ptr("knd"), IfEtag: ptr("")})
		if err != nil || anew.GetEtag() == old.GetEtag() {
			t.Errorf("created anew: %v, %v; it was %v", anew, err, old)
		}
	})
}

// TestIfETagAgainstTheStore: the etag is compared with the version that the write replaces, also
// after an external write since the leader read it.
func TestIfETagAgainstTheStore(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))}); err != nil {
			t.Fatal(err)
		}
		web, err := p.group("web")
		if err != nil {
			t.Fatal(err)
		}
		at := webAt
		struck := false
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && r.Key == at && !struck {
				struck = true
				s.put(at, strings.Replace(s.get(at), `"size":3`, `"size":5`, 1))
			}
			return objecttest.Outcome{}
		})
		_, err = p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(4)), IfEtag: ptr(web.GetEtag())})
		refused(t, err, codes.Aborted, "if_etag")
		if g, err := p.group("web"); err != nil || g.GetSize() != 5 || !struck {
			t.Errorf("the group is %v, %v", g, err)
		}
	})
}

// TestUnreadableIsNotGone: an instance with an unreadable record may live, so it is not
// treated as gone; calls of other tenants do not reveal it.
func TestUnreadableIsNotGone(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		ids := s.living()
		if err := p.shutdown(); err != nil {
			t.Fatal(err)
		}
		at := "instance/" + shardID + "/default." + ids[0].StorageKey() + ".json"
		record := s.get(at)
		s.put(at, strings.Replace(record, `"phase":"running"`, `"phase":"sleeping"`, 1))
		q := s.start(named("b")).awaitLeading()
		if err := s.agents.move(q); err != nil {
			t.Fatal(err)
		}
		remove := &nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1)), Remove: []string{string(ids[0])}}
		_, err := q.upsert(remove)
		refused(t, err, codes.FailedPrecondition, "remove", string(ids[0]), at, "sleeping")
		if keys := s.keys("groups/" + shardID + "/"); len(keys) > 0 {
			t.Errorf("the refusal wrote %v", keys)
		}
		other, err := q.operator("prod").UpsertGroup(within(t),
			&nstancev1.UpsertGroupRequest{Key: "web", Template: ptr("knd"), Size: ptr(int32(0)), Remove: remove.GetRemove()})
		if err != nil || !slices.Equal(other.GetAlreadyGone(), remove.GetRemove()) {
			t.Errorf("another tenant is told %v, %v", other, err)
		}
	})
}

// TestNamedOneThatDiedBefore: of three, one is named to go and died a moment before: its replacement
// and the innocent others stay, however often that is repeated.
func TestNamedOneThatDiedBefore(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("web", 3)
		before := s.living()
		s.world.Kill(before[0])
		p.awaitPhase(before[0], isDeleted)
		p.awaitSize("web", 3)
		for range 3 {
			resp, err := p.operator("default").UpsertGroup(within(t),
				&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(2)), Remove: []string{string(before[0])}})
			if err != nil || resp.GetGroup().GetSize() != 3 || len(resp.GetAlreadyGone()) != 1 {
				t.Fatalf("answered %v, %v; want a size of 3", resp, err)
			}
		}
		p.awaitSize("web", 3)
		now := s.living()
		for _, id := range before[1:] {
			if !slices.Contains(now, id) {
				t.Errorf("%s went, which was not named: %v live", id, now)
			}
		}
	})
}

// TestNamedOnesThatStillLeave: of two that are named one is gone and the other leaves for as long as
// it drains: repeated meanwhile, the call takes no third.
func TestNamedOnesThatStillLeave(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(5))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("web", 5)
		before := s.living()
		s.world.Kill(before[0])
		p.awaitPhase(before[0], isDeleted)
		p.awaitSize("web", 5)
		for range 5 {
			resp, err := p.operator("default").UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{
				Key: "web", Size: ptr(int32(3)), Remove: []string{string(before[0]), string(before[1])},
			})
			if err != nil || resp.GetGroup().GetSize() != 4 {
				t.Fatalf("answered %v, %v; want a size of 4", resp, err)
			}
			time.Sleep(time.Second)
		}
		p.awaitPhase(before[1], isDeleted)
		p.awaitSize("web", 4)
		now := s.living()
		for _, id := range before[2:] {
			if !slices.Contains(now, id) {
				t.Errorf("%s went, which was not named: %v live", id, now)
			}
		}
	})
}

// TestAlreadyGone: a leaving instance that is gone already is returned, without an error; one
// that lives in another group is an error.
func TestAlreadyGone(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		ids := s.living()
		absent, onDemand := string(newID(t, "knd")), p.created("k")
		p.awaitPhase(onDemand, isRunning)
		remove := func(size int32, ids ...string) (*nstancev1.UpsertGroupResponse, error) {
			return p.operator("default").UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(size), Remove: ids})
		}
		resp, err := remove(1, string(ids[1]), absent)
		if err != nil || !slices.Equal(resp.GetAlreadyGone(), []string{absent}) || resp.GetGroup().GetSize() != 1 {
			t.Fatalf("answered %v, %v", resp, err)
		}
		p.awaitPhase(ids[1], isDeleted)
		p.awaitSize("web", 1)
		resp, err = remove(1, string(ids[1]), absent)
		if err != nil || !slices.Equal(resp.GetAlreadyGone(), []string{string(ids[1]), absent}) {
			t.Errorf("the same again: %v, %v", resp, err)
		}
		p.awaitSize("web", 1)
		if have := s.living(); len(have) != 2 || !slices.Contains(have, ids[0]) {
			t.Errorf("%v live, want %s and %s", have, ids[0], onDemand)
		}

		_, err = remove(0, string(onDemand))
		refused(t, err, codes.NotFound, "remove", string(onDemand))
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "batch", Template: ptr("knd"), Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("batch", 1)
		_, err = p.operator("default").UpsertGroup(within(t),
			&nstancev1.UpsertGroupRequest{Key: "batch", Size: ptr(int32(0)), Remove: []string{string(ids[0])}})
		refused(t, err, codes.NotFound, "remove", string(ids[0]))
		_, err = p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Remove: []string{absent}})
		if refused(t, err, codes.InvalidArgument); !slices.Equal(fields(err), []string{"size"}) {
			t.Errorf("remove without size: %v", fields(err))
		}
		if err := p.deleteByKey("k"); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(onDemand, isDeleted)
		if resp, err := remove(1, string(onDemand)); err != nil || !slices.Equal(resp.GetAlreadyGone(), []string{string(onDemand)}) {
			t.Errorf("an on-demand one that is gone: %v, %v", resp, err)
		}
	})
}
