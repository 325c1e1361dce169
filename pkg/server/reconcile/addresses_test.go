package reconcile_test

import (
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/fake"
)

// TestAddressesAreTheProviders: addresses are known as soon as a create has returned,
// and to the next leader from its first list.
func TestAddressesAreTheProviders(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 1)
		s.lead()
		pass(time.Second)
		id := s.expectRunning(web, 1)[0]
		want := s.world.VMs()[0].Addresses
		if have := s.term.Addresses(id); len(want) == 0 || !slices.Equal(have, want) {
			t.Errorf("addresses are %v, want %v", have, want)
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		s.lead()
		pass(time.Second)
		if have := s.term.Addresses(id); !slices.Equal(have, want) {
			t.Errorf("the next leader says %v, want %v", have, want)
		}
		if have := s.term.Addresses("knd01h455vb4pex5vsknk084sn02q"); have != nil {
			t.Errorf("an instance that was never seen has %v", have)
		}
	})
}
