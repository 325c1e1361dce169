package server_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	isRunning  = nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING
	isPending  = nstancev1.InstancePhase_INSTANCE_PHASE_PENDING
	isDraining = nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING
	isDeleted  = nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
)

// create requests an on-demand instance of group web.
func (p *process) create(key string, tweaks ...func(*nstancev1.CreateInstanceRequest)) (*nstancev1.InstanceStatus, error) {
	req := &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: key}
	for _, tweak := range tweaks {
		tweak(req)
	}
	resp, err := p.operator("default").CreateInstance(within(p.t), req)
	return resp.GetInstance(), err
}

// created requests one that has to be granted.
func (p *process) created(key string, tweaks ...func(*nstancev1.CreateInstanceRequest)) fleet.InstanceID {
	p.t.Helper()
	i, err := p.create(key, tweaks...)
	if err != nil {
		p.t.Fatal(err)
	}
	return fleet.InstanceID(i.GetId())
}

func (p *process) delete(id fleet.InstanceID) error {
	_, err := p.operator("default").DeleteInstance(within(p.t),
		&nstancev1.DeleteInstanceRequest{Target: &nstancev1.DeleteInstanceRequest_Id{Id: string(id)}})
	return err
}

func (p *process) deleteByKey(key string) error {
	_, err := p.operator("default").DeleteInstance(within(p.t),
		&nstancev1.DeleteInstanceRequest{Target: &nstancev1.DeleteInstanceRequest_IdempotencyKey{IdempotencyKey: key}})
	return err
}

// onDemand returns the records of on-demand instances.
func (s *site) onDemand() []fleet.Instance {
	s.t.Helper()
	return slices.DeleteFunc(s.records(), func(i fleet.Instance) bool { return !i.OnDemand })
}

// failFirst injects a fault into the first write to keys under a prefix.
func (s *site) failFirst(prefix string, fault objecttest.Fault) {
	met := false
	s.store.Set(func(r objecttest.Request) objecttest.Outcome {
		if met || r.Verb != object.VerbPut || !strings.HasPrefix(r.Key, prefix) {
			return objecttest.Outcome{}
		}
		met = true
		return objecttest.Outcome{Fault: fault}
	})
}

// TestOnDemand: a requested instance runs beside the group's managed ones, which neither count
// it nor are scaled for it, until its deletion.
func TestOnDemand(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		own := s.living()
		i, err := p.create("nightly-7")
		if err != nil || !i.GetOnDemand() || i.GetPhase() != isPending || i.GetGroup() != "web" || i.GetTenant() != "default" ||
			i.GetCreatedAt() == nil {
			t.Fatalf("answered %v, %v", i, err)
		}
		id := fleet.InstanceID(i.GetId())
		if all := s.onDemand(); len(all) != 1 || all[0].ID != id || all[0].RequestKey != "nightly-7" || all[0].Epoch == 0 {
			t.Errorf("when it was answered the records were %+v", all)
		}
		p.awaitPhase(id, isRunning)
		p.awaitSize("web", 2)
		again, err := p.create("nightly-7")
		if err != nil || again.GetId() != string(id) || again.GetPhase() != isRunning {
			t.Errorf("the same again: %v, %v", again, err)
		}
		if have := s.living(); len(have) != 3 {
			t.Errorf("%v live", have)
		}
		other := p.created("")
		another := p.created("")
		if other == another || other == id {
			t.Error("without a key they are one")
		}
		p.awaitPhase(other, isRunning)
		p.awaitPhase(another, isRunning)

		for _, doomed := range []fleet.InstanceID{other, another} {
			if err := p.delete(doomed); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.deleteByKey("nightly-7"); err != nil {
			t.Fatal(err)
		}
		for _, gone := range []fleet.InstanceID{id, other, another} {
			p.awaitPhase(gone, isDeleted)
			if err := p.delete(gone); err != nil {
				t.Errorf("deleted again: %v", err)
			}
		}
		if err := p.deleteByKey("nightly-7"); err != nil {
			t.Errorf("deleted again by its key: %v", err)
		}
		if i, err := p.create("nightly-7"); err != nil || i.GetId() != string(id) || i.GetPhase() != isDeleted {
			t.Errorf("created again after its end: %v, %v", i, err)
		}
		p.awaitSize("web", 2)
		if have := s.living(); !slices.Equal(have, own) {
			t.Errorf("%v live, were %v", have, own)
		}
	})
}

// TestOnDemandRefusals: each invalid field is named, and nothing is created.
func TestOnDemandRefusals(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.created("taken", func(r *nstancev1.CreateInstanceRequest) { r.InstanceType = ptr("large") })
		vars := func(v any) func(*nstancev1.CreateInstanceRequest) {
			return func(r *nstancev1.CreateInstanceRequest) {
				value, err := structpb.NewValue(v)
				if err != nil {
					t.Fatal(err)
				}
				r.Vars = &structpb.Struct{Fields: map[string]*structpb.Value{"v": value}}
			}
		}
		group := func(name string) func(*nstancev1.CreateInstanceRequest) {
			return func(r *nstancev1.CreateInstanceRequest) { r.Group = name }
		}
		for name, c := range map[string]struct {
			key   string
			tweak func(*nstancev1.CreateInstanceRequest)
			code  codes.Code
			field string
			says  string
		}{
			"no group":        {tweak: group(""), code: codes.InvalidArgument, field: "group"},
			"a bad group":     {tweak: group("We b"), code: codes.InvalidArgument, field: "group", says: "We b"},
			"an absent group": {tweak: group("wbe"), code: codes.NotFound, says: "wbe"},
			"a path":          {key: "../x", code: codes.InvalidArgument, field: "idempotency_key", says: "../x"},
			"a long key":      {key: strings.Repeat("k", 129), code: codes.InvalidArgument, field: "idempotency_key"},
			"null":            {key: "new", tweak: vars(nil), code: codes.InvalidArgument, field: "vars.v", says: "null"},
			"too much":        {key: "new", tweak: vars(strings.Repeat("x", 70000)), code: codes.InvalidArgument, field: "vars", says: "65536"},
			"a long type": {key: "new", tweak: func(r *nstancev1.CreateInstanceRequest) { r.InstanceType = ptr(strings.Repeat("x", 999)) },
				code: codes.InvalidArgument, field: "instance_type"},
			"another type":  {key: "taken", code: codes.FailedPrecondition, says: "instance_type"},
			"another group": {key: "taken", tweak: group("wbe"), code: codes.FailedPrecondition, says: "group"},
			"different vars": {key: "taken", tweak: func(r *nstancev1.CreateInstanceRequest) { r.InstanceType = ptr("large"); vars(1)(r) },
				code: codes.FailedPrecondition, says: "vars"},
			"a broken request": {key: "broken", code: codes.FailedPrecondition, says: "malformed"},
		} {
			s.put("request/"+shardID+"/default.broken.json", "{}")
			if c.tweak == nil {
				c.tweak = func(*nstancev1.CreateInstanceRequest) {}
			}
			_, err := p.create(c.key, c.tweak)
			refused(t, err, c.code, c.says)
			if f := strings.Join(fields(err), " "); f != c.field {
				t.Errorf("%s: violations of %q, want %q", name, f, c.field)
			}
		}
		if n := len(s.onDemand()); n != 1 || len(s.keys("request/")) != 2 {
			t.Errorf("%d on-demand records, requests %v", n, s.keys("request/"))
		}
		absent := newID(t, "knd")
		refused(t, p.delete(absent), codes.NotFound, "no such instance "+string(absent))
		refused(t, p.deleteByKey("unheard-of"), codes.NotFound, "unheard-of")
		refused(t, p.delete("x"), codes.InvalidArgument, "id")
		refused(t, p.deleteByKey(".x"), codes.InvalidArgument, "idempotency_key")
		_, err := p.operator("default").DeleteInstance(within(t), &nstancev1.DeleteInstanceRequest{})
		refused(t, err, codes.InvalidArgument, "id")
	})
}

// TestOnDemandOfLeavingGroup: a group that is being deleted creates nothing.
func TestOnDemandOfLeavingGroup(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.config["GROUPS"] = `"default": {}`
		s.replace(`"default_drain_timeout": "0s"`, `"default_drain_timeout": "1h"`)
		p := s.start()
		s.populate(p)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "job", Template: ptr("knd"), Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("job", 1)
		if _, err := p.operator("default").DeleteGroup(within(t), &nstancev1.DeleteGroupRequest{Key: "job"}); err != nil {
			t.Fatal(err)
		}
		_, err := p.create("k", func(r *nstancev1.CreateInstanceRequest) { r.Group = "job" })
		refused(t, err, codes.FailedPrecondition, "job is being deleted")
		s.put(groupAt("default", "bad"), `{"template": "nope"}`)
		p.ends()
		q := s.start(named("b")).awaitLeading()
		_, err = q.create("k", func(r *nstancev1.CreateInstanceRequest) { r.Group = "bad" })
		refused(t, err, codes.FailedPrecondition, "bad can't be used", "nope")
		if n := len(s.keys("request/")); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestOneKeyIsOneInstance: however often a key is used, on any servers and with any lost
// replies, it leads to one instance.
func TestOneKeyIsOneInstance(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prefix string
		fault  objecttest.Fault
	}{
		"nothing lost": {}, "the request's reply": {"request/", objecttest.ReplyLost}, "the request": {"request/", objecttest.Dropped},
		"the record's reply": {"instance/", objecttest.ReplyLost}, "the record": {"instance/", objecttest.Dropped},
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t)
			if c.prefix != "" {
				s.failFirst(c.prefix, c.fault)
			}
			ids := make([]fleet.InstanceID, 12)
			var all sync.WaitGroup
			for n := range ids {
				client := p.operator("default")
				ctx := within(t)
				all.Go(func() {
					resp, err := client.CreateInstance(ctx, &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: "k"})
					if err != nil {
						t.Error(err)
					}
					ids[n] = fleet.InstanceID(resp.GetInstance().GetId())
				})
			}
			all.Wait()
			if slices.Sort(ids); len(slices.Compact(ids)) != 1 {
				t.Fatalf("they were told %v", ids)
			}
			p.awaitPhase(ids[0], isRunning)
			if all := s.onDemand(); len(all) != 1 || len(s.keys("request/")) != 1 {
				t.Errorf("records %v, requests %v", all, s.keys("request/"))
			}
			if n := len(s.world.CreateCalls(ids[0])); n != 1 || len(s.living()) != 3 {
				t.Errorf("%d creates, %v live", n, s.living())
			}
		}))
	}
}

// halfMade ends a leader between the request and the record of an instance, and returns the next
// leader.
func halfMade(t *testing.T, key string) (*site, *process, fleet.InstanceID) {
	t.Helper()
	s, p := running(t)
	arrived := make(chan struct{}, 16)
	s.store.Set(func(r objecttest.Request) objecttest.Outcome {
		if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "instance/") {
			arrived <- struct{}{}
			return objecttest.Outcome{Fault: objecttest.Hung}
		}
		return objecttest.Outcome{}
	})
	answer := make(chan error, 1)
	client, ctx := p.operator("default"), within(t)
	go func() {
		_, err := client.CreateInstance(ctx, &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: key})
		answer <- err
	}()
	<-arrived
	p.ends()
	refused(t, <-answer, codes.Unavailable)
	s.store.Set(nil)
	if n := len(s.onDemand()); n != 0 {
		t.Fatalf("%d records", n)
	}
	_, id, _ := strings.Cut(s.get("request/"+shardID+"/default."+key+".json"), `"id":"`)
	q := s.successor()
	return s, q, fleet.InstanceID(id[:29])
}

// TestKeyAcrossLeaders: the next leader continues.
func TestKeyAcrossLeaders(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, q, id := halfMade(t, "k")
		if have := q.created("k"); have != id {
			t.Errorf("made %s, the key names %s", have, id)
		}
		q.awaitPhase(id, isRunning)
		if all := s.onDemand(); len(all) != 1 || len(s.living()) != 3 {
			t.Errorf("records %v, %v live", all, s.living())
		}
	})
}
