package identities

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
)

// TestServersOfTheCluster: the leaders of all shards are read from their election records, again
// when those change. The first refresh must succeed; if later ones fail, the cached state stays.
func TestServersOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := mem.New(mem.Config{HashETags: true})
		store := objecttest.NewFaults(inner, objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped}))
		put := func(host, released string) {
			body := `{ "holder": "b", "epoch": 1, "rev": 1, "lease_duration": "10s", "fence_window": "1s", "released": ` + released + `,
			  "addrs": { "election": "` + host + `:1", "registration": "[fd00::7]:2", "operator": "?", "agent": "localhost:3" } }`
			if _, err := inner.Put(t.Context(), "leader/dev-2.json", []byte(body), object.Precondition{}); err != nil {
				t.Fatal(err)
			}
		}
		s := NewDirectory(func() Servers { return Servers{DNS: []string{"own.internal"}} }, store, time.Now)
		knows := func(names ...string) {
			t.Helper()
			for _, name := range []string{"own.internal", "a.internal", "b.internal", "localhost"} {
				want := false
				for _, n := range names {
					want = want || n == name
				}
				if s.known().Name(name) != want || want && !s.known().Below("internal") {
					t.Errorf("%s is a server's: %t, want %t", name, !want, want)
				}
			}
		}
		put("a.internal", "false")
		if err := s.refresh(t.Context()); !errors.Is(err, object.ErrUnknown) {
			t.Errorf("a first look at a store that is away: %v", err)
		}
		knows("own.internal")
		store.Set(nil)
		if err := s.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		knows("own.internal", "a.internal")
		if !s.known().Address(netip.MustParseAddr("fd00::7")) {
			t.Error("the address is not known")
		}
		put("b.internal", "false")
		if err := s.refresh(t.Context()); err != nil { // within a moment nothing is read
			t.Fatal(err)
		}
		knows("own.internal", "a.internal")
		store.Set(objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped}))
		time.Sleep(serversLook)
		if err := s.refresh(t.Context()); err != nil {
			t.Errorf("a later look at a store that is away: %v", err)
		}
		knows("own.internal", "a.internal")
		store.Set(nil)
		time.Sleep(serversLook)
		if err := s.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		knows("own.internal", "b.internal")
		time.Sleep(serversGone - serversLook)
		if err := s.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		knows("own.internal", "b.internal")
		time.Sleep(serversLook) // a day without a renewal
		if err := s.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		knows("own.internal")
		put("a.internal", "false")
		time.Sleep(serversLook)
		if err := s.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		knows("own.internal", "a.internal")
		put("b.internal", "true")
		time.Sleep(serversLook)
		if err := s.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		knows("own.internal")
	})
}
