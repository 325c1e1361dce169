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

// TestServersOfTheCluster: the servers of all shards are read from their election records, again
// when those change. The first refresh must succeed; if later ones fail, the cached state stays. A
// record that is released, or was not renewed for a day, has stopped servers.
func TestServersOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := mem.New(mem.Config{HashETags: true})
		store := objecttest.NewFaults(inner, objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped}))
		put := func(host, released string) {
			body := `{ "holder": "b", "epoch": 1, "rev": 1, "lease_duration": "10s", "fence_window": "1s", "released": ` + released + `,
			  "addrs": { "election": "` + host + `:1", "registration": "[fd00::7]:2", "operator": "?", "agent": "localhost:3" },
			  "servers": ["standby.internal", "10.0.0.9"] }`
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
				if s.Name(name) != want || want && !s.Below("internal") {
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
		if !s.Address(netip.MustParseAddr("fd00::7")) || !s.Address(netip.MustParseAddr("10.0.0.9")) || !s.Name("standby.internal") {
			t.Errorf("known are %v", s.others.Load())
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
		if !s.stopped().Name("a.internal") {
			t.Errorf("a server that is no longer named: %v", s.others.Load())
		}
		time.Sleep(serversStopped - serversLook)
		if err := s.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		knows("own.internal", "b.internal")
		time.Sleep(serversLook) // a day without a renewal
		if err := s.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		knows("own.internal")
		if !s.stopped().Name("b.internal") || !s.stopped().Name("standby.internal") {
			t.Errorf("stopped are %v", s.stopped())
		}
		put("a.internal", "false")
		time.Sleep(serversLook)
		if err := s.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		knows("own.internal", "a.internal")
		put("b.internal", `true, "successor": "c"`) // a handover
		time.Sleep(serversLook)
		if err := s.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		knows("own.internal", "b.internal")
		put("b.internal", "true")
		time.Sleep(serversLook)
		if err := s.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		knows("own.internal")
		if !s.stopped().Name("b.internal") || !s.stopped().Name("a.internal") {
			t.Errorf("stopped are %v", s.stopped())
		}
		time.Sleep(2 * serversStopped)
		put("c.internal", "false")
		if err := s.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.stopped().Name("a.internal") {
			t.Error("a server that was last named days ago is remembered")
		}
	})
}

// TestMalformedServers: a record whose servers can't be read has those of its addresses.
func TestMalformedServers(t *testing.T) {
	good := `{ "holder": "b", "epoch": 1, "rev": 1, "lease_duration": "10s", "fence_window": "1s",
		"addrs": { "election": "a.internal:1" }, "servers": `
	for text, want := range map[string]int{
		good + `["b.internal"] }`: 2, good + `[1] }`: 1, good + `"b.internal" }`: 1, good + `null }`: 1,
		`{ "servers": ["b.internal"] }`: 0, "damaged": 0,
	} {
		if got := (electionRecord{}).next(object.Object{Body: []byte(text)}, time.Now()).named; len(got) != want {
			t.Errorf("%s: the servers are %v, want %d", text, got, want)
		}
	}
}
