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

// TestKeyOfAnother: an instance that submits another's key gets nothing for it, and gets its
// file once it submits its own key. A key is recorded before its certificate is sent.
func TestKeyOfAnother(t *testing.T) {
	inBubble(t, certificate, func(t *testing.T, f *fixture) {
		a := f.connected("default")
		a.receives("k.crt")
		b := f.instance("default")
		b.keyless = true
		b.connect()
		own := b.held["k"]
		b.held["k"] = a.held["k"]
		var inUse delivery.KeysInUse
		if err := b.submit(); !errors.As(err, &inUse) || !slices.Equal(inUse, []string{"k"}) {
			t.Errorf("the key of another: %v", err)
		}
		b.receivesNothing()
		if owners := slices.Collect(maps.Values(f.bound)); !slices.Equal(owners, []fleet.InstanceID{a.id}) {
			t.Errorf("recorded are keys of %v", owners)
		}
		b.held["k"] = own
		if err := b.submit(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.receives("k.crt")
		if len(f.bound) != 2 {
			t.Errorf("recorded are %v", f.bound)
		}
	})
}
