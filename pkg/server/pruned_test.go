package server_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestPrunedAgentsCallsAreCheap: its certificate is valid, its record is gone, and it calls
// repeatedly.
func TestPrunedAgentsCallsAreCheap(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		id := newID(t, "knd")
		var gets atomic.Int64
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbGet && strings.Contains(r.Key, id.StorageKey()) {
				gets.Add(1)
			}
			return objecttest.Outcome{}
		})
		conn := s.dial(p.agentAddr(), issue(t, s.trust().CA, pki.RoleAgent, "default", id, time.Hour))
		for range 50 {
			_, err := nstancev1.NewAgentServiceClient(conn).SubmitPublicKeys(within(t), &nstancev1.SubmitPublicKeysRequest{})
			if !rpc.Revoked(err) {
				t.Fatalf("answered %v, want that the certificate is revoked", err)
			}
		}
		if n := gets.Load(); n != 1 {
			t.Errorf("the store was asked %d times by 50 calls, want once", n)
		}
	})
}
