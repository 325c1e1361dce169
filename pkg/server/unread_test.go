package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// patient drains for longer than any test.
func patient(s *site) {
	s.config[`"default_drain_timeout": "0s"`] = `"default_drain_timeout": "1h"`
	s.putConfig(shardID)
}

// followed is a shard of two machines with a standby, of whose machines the newer one is replaced
// after the standby read the records: it drains.
func followed(t *testing.T) (s *site, p, q *process, listing *objecttest.Listing, drains fleet.InstanceID) {
	t.Helper()
	s = newSite(t, with("GROUPS", webOf(2)), calm, patient)
	listing = objecttest.NewListing(s.inner)
	s.store = objecttest.NewFaults(listing, nil)
	p = s.start()
	s.populate(p)
	p.awaitSize("web", 2)
	q = s.standby()
	drains = slices.Max(s.living())
	if err := p.remove(drains); err != nil {
		t.Fatal(err)
	}
	p.awaitPhase(drains, isDraining)
	return s, p, q, listing, drains
}

// draining returns the instances that drain, by their records.
func (s *site) draining() (ids []fleet.InstanceID) {
	for _, r := range s.records() {
		if r.Phase == fleet.Draining {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// TestLateListingTakesNoWorkingMachine: a server that knows the records from before takes over, and the
// listing of the store still shows them as they were: an instance that drains seems to run. No other is
// taken for it.
func TestLateListingTakesNoWorkingMachine(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, q, listing, drains := followed(t)
		listing.Lag(30*time.Second, "instance/")
		p.ends()
		q.awaitLeading()
		q.takesAgents()
		time.Sleep(10 * time.Minute)
		if ids := s.draining(); !slices.Equal(ids, []fleet.InstanceID{drains}) {
			t.Errorf("%v drain, want only %s", ids, drains)
		}
		if runs := s.runs(); len(runs) != 2 {
			t.Errorf("%v run, want two", runs)
		}
	})
}

// TestRecordsAreReadBeforeTaking: while a record of a group can't be read, a new leader takes none of its
// working machines, and replaces one that died; then it does what is due.
func TestRecordsAreReadBeforeTaking(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, q, _, drains := followed(t)
		runs := s.runs()
		p.ends()
		s.store.Set(func(r objecttest.Request) (o objecttest.Outcome) {
			if r.Verb == object.VerbGet && r.Key == s.instanceKey(slices.Min(runs)) {
				o.Fault = objecttest.Dropped
			}
			return o
		})
		q.awaitLeading()
		q.takesAgents()
		s.world.Kill(slices.Max(runs))
		eventually(t, "a replacement", func() error {
			if now := s.runs(); len(now) != 2 || slices.Contains(now, slices.Max(runs)) {
				return fmt.Errorf("%v run", now)
			}
			return nil
		})
		if _, err := q.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if ids := s.draining(); !slices.Equal(ids, []fleet.InstanceID{drains}) {
			t.Errorf("%v drain while a record can't be read, want only %s", ids, drains)
		}
		if n := strings.Count(q.log.String(), "no working instance of group default/web is taken until its records are read"); n != 1 {
			t.Errorf("%d lines say why no machine is taken", n)
		}
		s.store.Set(nil)
		eventually(t, "one goes", func() error {
			if ids := s.draining(); len(ids) != 2 || len(s.runs()) != 1 {
				return fmt.Errorf("%v drain, %v run", ids, s.runs())
			}
			return nil
		})
	})
}

// TestRecordsAreGoneBeforeTaking: the records of a shard vanish after a takeover. The reads before the first
// working machine is taken make the leader forget none, so that none is made twice.
func TestRecordsAreGoneBeforeTaking(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, q, _, _ := followed(t)
		machines := s.living()
		p.ends()
		q.awaitLeading()
		q.takesAgents()
		for _, key := range s.keys("instance/") {
			s.remove(key)
		}
		s.world.ForgetCalls()
		if _, err := q.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if now := s.living(); !slices.Equal(now, machines) || len(s.world.Calls(fake.OpCreate)) > 0 {
			t.Errorf("%v live, were %v, and %v was asked", now, machines, s.world.Calls(fake.OpCreate))
		}
	})
}

// instanceKey returns the key of an instance's record.
func (s *site) instanceKey(id fleet.InstanceID) string {
	return "instance/" + shardID + "/default." + id.StorageKey() + ".json"
}
