package server_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

// operatorReads counts the reads of operators' records from now on.
func (s *site) operatorReads() (lists, gets *atomic.Int32) {
	lists, gets = &atomic.Int32{}, &atomic.Int32{}
	s.store.Set(func(r objecttest.Request) objecttest.Outcome {
		if strings.HasPrefix(r.Key, fleet.OperatorPrefix) {
			if r.Verb == object.VerbList {
				lists.Add(1)
			}
			if r.Verb == object.VerbGet {
				gets.Add(1)
			}
		}
		return objecttest.Outcome{}
	})
	return lists, gets
}

// TestManyListsCostLittle: a tenant that lists its operators as fast as it can costs the store
// a few listings a second, and one read per record; every result is at least as recent as its
// call.
func TestManyListsCostLittle(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		client := p.operator("default")
		for range 30 {
			s.operator("default")
		}
		lists, gets := s.operatorReads()
		list := func() int {
			resp, err := client.ListOperators(within(t), &nstancev1.ListOperatorsRequest{})
			if err != nil {
				t.Error(err)
			}
			return len(resp.GetOperators())
		}
		var all sync.WaitGroup
		var answers atomic.Int32
		for end := time.Now().Add(10 * time.Second); answers.Load() < 8; answers.Add(1) {
			all.Go(func() {
				for time.Now().Before(end) {
					if n := list(); n < 31 {
						t.Errorf("%d operators are listed", n)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		all.Wait()
		if l, g := lists.Load(), gets.Load(); l > 60 || g > 40 { // the roster reads records, too
			t.Errorf("ten seconds cost %d listings and %d reads of records", l, g)
		}
		for range 5 {
			before := list()
			o, _ := s.operator("default")
			if n := list(); n != before+1 {
				t.Errorf("%d operators, and after one more %d", before, n)
			}
			s.put(o.Key(), "{") // damaged, as its status shows
			resp, err := client.ListOperators(within(t), &nstancev1.ListOperatorsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, listed := range resp.GetOperators() {
				if listed.GetId() == string(o.ID) && listed.GetRegisteredAt() != nil {
					t.Errorf("listed as it was before: %v", listed)
				}
			}
		}
	})
}

// TestReadsOfATenant: reads are counted by tenant, and a list that needs more than is left
// succeeds once any token is left.
func TestReadsOfATenant(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := bounded(t, `"reads_per_second": 1`, `"default": {}`)
		client := p.operator("prod")
		for range 30 {
			s.operator("prod")
		}
		list := func() error {
			_, err := client.ListOperators(within(t), &nstancev1.ListOperatorsRequest{})
			return err
		}
		if err := list(); err != nil {
			t.Fatal(err)
		}
		refused(t, list(), codes.ResourceExhausted, `the quota of tenant "prod" is used up: reads_per_second: at most 1 a second are allowed`)
		if _, err := client.ListGroups(within(t), &nstancev1.ListGroupsRequest{}); err != nil {
			t.Errorf("a call that reads nothing: %v", err)
		}
		const words = "reads_per_second"
		_, err := client.GetInstanceStatus(within(t), &nstancev1.GetInstanceStatusRequest{Id: string(newID(t, "knd"))})
		refused(t, err, codes.ResourceExhausted, words)
		_, err = client.CreateInstance(within(t), &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: "k"})
		refused(t, err, codes.ResourceExhausted, words)
		byKey := &nstancev1.DeleteInstanceRequest_IdempotencyKey{IdempotencyKey: "k"}
		_, err = client.DeleteInstance(within(t), &nstancev1.DeleteInstanceRequest{Target: byKey})
		refused(t, err, codes.ResourceExhausted, words)
		time.Sleep(20 * time.Second)
		if err := list(); err != nil {
			t.Errorf("later: %v", err)
		}
	})
}
