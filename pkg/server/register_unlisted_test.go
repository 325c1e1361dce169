package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestRegisterUnlisted: an agent registers with a new leader although neither the listing of the
// records nor the provider's list of VMs shows its instance yet.
func TestRegisterUnlisted(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("GROUPS", `"default": { "web": { "template": "knd", "size": 1 } }`))
		s.world = fake.New(fake.Config{Lag: fake.Fixed(10 * time.Minute)})
		listing := objecttest.NewListing(s.inner)
		s.store = objecttest.NewFaults(listing, nil)
		p := s.start().awaitLeading()
		id := s.awaitMachine()
		listing.Hide(func(key string) bool { return strings.HasPrefix(key, "instance/") })
		p.ends()
		q := s.start(named("b")).awaitLeading()
		if _, err := q.registerWith(s.nonceOf(id), newKey(t)); err != nil {
			t.Fatal(err)
		}
		if i, err := q.instance(id); err != nil || i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING {
			t.Errorf("the instance is %v, %v", i, err)
		}
	})
}
