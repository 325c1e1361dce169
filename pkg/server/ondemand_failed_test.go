package server_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

// impatient starts a server with a create timeout of a second for on-demand instances, and a
// group of two.
func impatient(t *testing.T) (*site, *process) {
	t.Helper()
	s := newSite(t)
	s.replace(`"default_drain_timeout": "0s"`, `"default_drain_timeout": "0s", "on_demand": { "create_timeout": "1s" }`)
	p := s.start()
	s.populate(p)
	p.awaitSize("web", 2)
	return s, p
}

// noRoom makes the provider refuse every create until it is restored.
func (s *site) noRoom() {
	s.world.FailNext(fake.OpCreate, 1000, fake.Fault{Err: fmt.Errorf("the zone is out of them: %w", provider.ErrQuota)})
}

// failed creates an on-demand instance that fails for lack of capacity.
func (s *site) failed(p *process, key string) fleet.InstanceID {
	s.t.Helper()
	s.noRoom()
	id := p.created(key)
	p.awaitPhase(id, isDeleted)
	s.world.Mend()
	return id
}

// TestOnDemandWaits: without capacity the instance stays pending and reports the reason, to its
// tenant only; then it is created, and the problem is over.
func TestOnDemandWaits(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		s.noRoom()
		id := p.created("k")
		eventually(t, "it says what it waits for", func() error {
			i, err := p.instance(id)
			if err != nil {
				return err
			}
			if i.GetPhase() != isPending || !strings.Contains(i.GetLastError(), "out of them") || i.GetLastErrorAt() == nil {
				return fmt.Errorf("it is %v", i)
			}
			return nil
		})
		_, err := p.operator("prod").GetInstanceStatus(within(t), &nstancev1.GetInstanceStatusRequest{Id: string(id)})
		refused(t, err, codes.NotFound)
		if strings.Contains(fmt.Sprint(err), "out of them") {
			t.Errorf("another tenant is told %v", err)
		}
		s.world.Mend()
		p.awaitPhase(id, isRunning)
		if i, err := p.instance(id); err != nil || i.GetLastError() != "" || i.GetLastErrorAt() != nil {
			t.Errorf("afterwards: %v, %v", i, err)
		}
	})
}

// TestFailedKeyIsUsedAgain: however the instance failed, its key leads to one new instance,
// despite concurrent calls and lost replies; once that one ran, the key names it permanently.
func TestFailedKeyIsUsedAgain(t *testing.T) {
	for name, fault := range map[string]objecttest.Fault{
		"nothing lost": 0, "the reply": objecttest.ReplyLost, "the write": objecttest.Dropped,
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				s, p := impatient(t)
				old := s.failed(p, "k")
				i, err := p.instance(old)
				if err != nil || i.GetReason() != "create-timeout" || !strings.Contains(i.GetLastError(), "out of them") ||
					!strings.Contains(i.GetLastError(), "within 1s") {
					t.Errorf("it failed as %v, %v", i, err)
				}
				if fault != 0 {
					s.failFirst("request/", fault)
				}
				id := s.askTogether(p, "k", old)
				p.awaitPhase(id, isRunning)
				if all := s.onDemand(); len(all) != 2 || len(s.keys("request/")) != 1 || len(s.living()) != 3 {
					t.Errorf("records %v, requests %v, %v live", all, s.keys("request/"), s.living())
				}
				if err := p.deleteByKey("k"); err != nil {
					t.Fatal(err)
				}
				p.awaitPhase(id, isDeleted)
				if i, err := p.create("k"); err != nil || i.GetId() != string(id) || i.GetPhase() != isDeleted {
					t.Errorf("created again after its end: %v, %v", i, err)
				}
			})
		})
	}
}

// askTogether runs concurrent creates with one key, which then all return the same new instance.
func (s *site) askTogether(p *process, key string, old fleet.InstanceID) fleet.InstanceID {
	s.t.Helper()
	ids := make([]fleet.InstanceID, 8)
	var all sync.WaitGroup
	for n := range ids {
		client, ctx := p.operator("default"), within(s.t)
		all.Go(func() {
			resp, err := client.CreateInstance(ctx, &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: key})
			if err != nil {
				s.t.Error(err)
			}
			ids[n] = fleet.InstanceID(resp.GetInstance().GetId())
		})
	}
	all.Wait()
	if slices.Sort(ids); len(slices.Compact(ids)) != 1 || ids[0] == old || ids[0] == "" {
		s.t.Fatalf("they were told %v, and %s failed", ids, old)
	}
	return ids[0]
}

// TestRefusedKeyIsUsedAgain: a permanently refused create ends at once, and the key may be
// reused with other fields, by any leader, before or after the first record is pruned.
func TestRefusedKeyIsUsedAgain(t *testing.T) {
	for name, pruned := range map[string]bool{"its record is there": false, "its record is gone": true} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				s, p := running(t)
				s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: fmt.Errorf("no such type: %w", provider.ErrInvalid)})
				old := p.created("k", func(r *nstancev1.CreateInstanceRequest) { r.InstanceType = ptr("larhe") })
				p.awaitPhase(old, isDeleted)
				if i, err := p.instance(old); err != nil || i.GetReason() != "create-failed" || !strings.Contains(i.GetLastError(), "no such type") {
					t.Errorf("it failed as %v, %v", i, err)
				}
				if err := p.shutdown(); err != nil {
					t.Fatal(err)
				}
				if pruned {
					s.prune(old)
				}
				q := s.start(named("b")).awaitLeading()
				if err := s.agents.move(q); err != nil {
					t.Fatal(err)
				}
				id := q.created("k", func(r *nstancev1.CreateInstanceRequest) { r.InstanceType = ptr("large") })
				q.awaitPhase(id, isRunning)
				if spec, _ := s.world.Spec(id); id == old || spec.InstanceType != "large" {
					t.Errorf("made %s as %q, and %s had failed", id, spec.InstanceType, old)
				}
				_, err := q.create("k", func(r *nstancev1.CreateInstanceRequest) { r.InstanceType = ptr("larhe") })
				refused(t, err, codes.FailedPrecondition, "instance_type")
			})
		})
	}
}

// TestReclaimedKeyAcrossLeaders: if a leader ends between the request and the record of the new
// instance, the next one continues.
func TestReclaimedKeyAcrossLeaders(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := impatient(t)
		old := s.failed(p, "k")
		arrived := make(chan struct{}, 16)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "instance/") && !strings.Contains(r.Key, old.StorageKey()) {
				arrived <- struct{}{}
				return objecttest.Outcome{Fault: objecttest.Hung}
			}
			return objecttest.Outcome{}
		})
		answer := make(chan error, 1)
		client, ctx := p.operator("default"), within(t)
		go func() {
			_, err := client.CreateInstance(ctx, &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: "k"})
			answer <- err
		}()
		<-arrived
		if err := p.shutdown(); err != nil {
			t.Fatal(err)
		}
		refused(t, <-answer, codes.Unavailable)
		s.store.Set(nil)
		_, text, _ := strings.Cut(s.get("request/"+shardID+"/default.k.json"), `"id":"`)
		q := s.start(named("b")).awaitLeading()
		if err := s.agents.move(q); err != nil {
			t.Fatal(err)
		}
		if id := q.created("k"); string(id) != text[:29] || id == old {
			t.Errorf("made %s; the key names %s, and %s failed", id, text[:29], old)
		}
		q.awaitPhase(fleet.InstanceID(text[:29]), isRunning)
	})
}

// TestRemovedKeyIsNotUsedAgain: a failed instance whose removal was requested is gone when the
// creation is repeated.
func TestRemovedKeyIsNotUsedAgain(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := impatient(t)
		for name, remove := range map[string]func(fleet.InstanceID) error{
			"by-key":     func(fleet.InstanceID) error { return p.deleteByKey("by-key") },
			"by-id":      p.delete,
			"without-it": nil,
		} {
			id := s.failed(p, name)
			if remove == nil {
				if i, err := p.create(name); err != nil || i.GetId() == string(id) {
					t.Errorf("%s: %v, %v", name, i, err)
				}
				continue
			}
			for range 2 {
				if err := remove(id); err != nil {
					t.Fatal(err)
				}
			}
			if i, err := p.create(name); err != nil || i.GetId() != string(id) || i.GetPhase() != isDeleted {
				t.Errorf("%s: %v, %v", name, i, err)
			}
		}
		id := s.failed(p, "pruned")
		if err := p.shutdown(); err != nil {
			t.Fatal(err)
		}
		s.prune(id)
		q := s.start(named("b")).awaitLeading()
		if err := q.deleteByKey("pruned"); err != nil {
			t.Fatal(err)
		}
		if i, err := q.create("pruned"); err != nil || i.GetId() != string(id) || i.GetPhase() != isDeleted {
			t.Errorf("pruned: %v, %v", i, err)
		}
	})
}

// TestKeysExpire: long after the end of an instance its key names nothing, and the request is
// deleted; that of a live instance stays.
func TestKeysExpire(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.replace(`"default_drain_timeout": "0s"`, `"default_drain_timeout": "0s", "on_demand": { "create_timeout": "1s" },
		  "garbage_collection": { "deleted_record_retention": "1m", "request_retention": "1h" }`)
		p := s.start()
		s.populate(p)
		p.awaitSize("web", 2)
		failed := s.failed(p, "failed")
		lives, deleted := p.created("lives"), p.created("deleted")
		p.awaitPhase(lives, isRunning)
		p.awaitPhase(deleted, isRunning)
		if err := p.deleteByKey("deleted"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		if keys := s.keys("request/"); len(keys) != 3 {
			t.Errorf("before their time is over: %v", keys)
		}
		time.Sleep(3*time.Hour + 30*time.Minute)
		if keys := s.keys("request/"); len(keys) != 1 || !strings.Contains(keys[0], "lives") {
			t.Errorf("afterwards: %v", keys)
		}
		for key, old := range map[string]fleet.InstanceID{"failed": failed, "deleted": deleted} {
			refused(t, p.deleteByKey(key), codes.NotFound)
			if id := p.created(key); id == old {
				t.Errorf("%s names %s again", key, id)
			}
		}
		if id := p.created("lives"); id != lives {
			t.Errorf("another instance for a key whose instance lives: %s, not %s", id, lives)
		}
	})
}
