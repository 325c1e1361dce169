package delivery_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/delivery"
)

// TestKeyOfAnother: an instance that submits the key of another gets nothing for it, and
// its file once it submits one of its own. A key is recorded before its certificate is
// sent.
func TestKeyOfAnother(t *testing.T) {
	inBubble(t, certificate, func(t *testing.T, s *site) {
		a := s.connected("default")
		a.receives("k.crt")
		b := s.instance("default")
		b.keyless = true
		b.connect()
		own := b.held["k"]
		b.held["k"] = a.held["k"]
		var inUse delivery.KeysInUse
		if err := b.submit(); !errors.As(err, &inUse) || !slices.Equal(inUse, []string{"k"}) {
			t.Errorf("the key of another: %v", err)
		}
		b.receivesNothing()
		if owners := slices.Collect(maps.Values(s.bound)); !slices.Equal(owners, []fleet.InstanceID{a.id}) {
			t.Errorf("recorded are keys of %v", owners)
		}
		b.held["k"] = own
		if err := b.submit(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.receives("k.crt")
		if len(s.bound) != 2 {
			t.Errorf("recorded are %v", s.bound)
		}
	})
}
