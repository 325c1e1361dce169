package identities

import (
	"net/netip"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/registration"
)

// shown is the provider's data, by name and by address.
type shown struct {
	named     fleet.Holders[string]
	addressed fleet.Holders[netip.Addr]
}

func (s shown) Named(name string) []fleet.InstanceID         { return s.named[name] }
func (s shown) NamedBelow(string) []fleet.InstanceID         { return nil }
func (s shown) Addressed(addr netip.Addr) []fleet.InstanceID { return s.addressed[addr] }

// TestShownAndRecorded: an unregistered instance owns what the provider shows of its machine;
// what a record has is not lost to what the provider shows of others.
func TestShownAndRecorded(t *testing.T) {
	const pending, running, third = "knd00vhnczb3efy4867r3gas63hms", "knd00vhnczb3eeapb8hk065vaf1b5", "knd01h455vb4pex5vsknk084sn02q"
	addr := netip.MustParseAddr("10.0.0.7")
	provider := shown{
		named:     fleet.Holders[string]{"web.internal": {pending}},
		addressed: fleet.Holders[netip.Addr]{addr: {pending}},
	}
	k := New(func(fleet.InstanceID) bool { return true }, NewDirectory(func() (none Servers) { return none }, nil, nil), provider, nil)
	owner := func(id fleet.InstanceID, want registration.Owner) {
		t.Helper()
		if name, address := k.NameOwner(id, "web.internal"), k.AddressOwner(id, addr); name != want || address != want {
			t.Errorf("for %s the name is %q's and the address %q's, want %q", id, name, address, want)
		}
	}
	owner(pending, "")
	owner(third, registration.OwnerInstance)
	k.Follow(fleet.Instance{ID: running, Phase: fleet.Running, Rev: 2, Hostname: "web.internal", IPs: []string{"10.0.0.7"}})
	owner(running, "")
	owner(pending, registration.OwnerInstance)
	owner(third, registration.OwnerInstance)
}

// TestLateFollow: a stale record neither overrides a newer one nor brings back a deleted
// instance's identity.
func TestLateFollow(t *testing.T) {
	const id, other = "knd00vhnczb3efy4867r3gas63hms", "knd00vhnczb3eeapb8hk065vaf1b5"
	lives := true
	k := New(func(fleet.InstanceID) bool { return lives }, NewDirectory(func() (none Servers) { return none }, nil, nil), shown{}, nil)
	addr := netip.MustParseAddr("10.0.0.7")
	owns := func(want registration.Owner) {
		t.Helper()
		if name, address := k.NameOwner(other, "web.internal"), k.AddressOwner(other, addr); name != want || address != want {
			t.Errorf("the name is %q's and the address %q's, want %q", name, address, want)
		}
	}
	pending := fleet.Instance{ID: id, Phase: fleet.Pending, Rev: 1}
	running := fleet.Instance{ID: id, Phase: fleet.Running, Rev: 2, Hostname: "web.internal", IPs: []string{"10.0.0.7"}}
	k.Follow(running)
	k.Follow(pending)
	owns(registration.OwnerInstance)
	moved := running
	moved.Rev, moved.Hostname, moved.IPs = 3, "", nil
	k.Follow(moved)
	k.Follow(running)
	owns("")
	lives = false
	k.Follow(fleet.Instance{ID: id, Phase: fleet.Deleted})
	k.Follow(running)
	owns("")
}

// TestStoppedServers: what a stopped server had is an instance's once the provider shows it of its machine,
// and for as long as its record has it.
func TestStoppedServers(t *testing.T) {
	const id, other = "knd00vhnczb3efy4867r3gas63hms", "knd00vhnczb3eeapb8hk065vaf1b5"
	addr := netip.MustParseAddr("10.0.0.7")
	provider := shown{named: fleet.Holders[string]{}, addressed: fleet.Holders[netip.Addr]{}}
	servers := NewDirectory(func() (none Servers) { return none }, nil, nil)
	servers.others.Store(&others{stopped: Servers{DNS: []string{"asleep.internal"}, IPs: []netip.Addr{addr}}})
	k := New(func(fleet.InstanceID) bool { return true }, servers, provider, nil)
	owner := func(id fleet.InstanceID, want registration.Owner) {
		t.Helper()
		if name, address := k.NameOwner(id, "asleep.internal"), k.AddressOwner(id, addr); name != want || address != want {
			t.Errorf("for %s the name is %q's and the address %q's, want %q", id, name, address, want)
		}
	}
	owner(id, registration.OwnerServer)
	provider.named["asleep.internal"], provider.addressed[addr] = []fleet.InstanceID{id}, []fleet.InstanceID{id}
	owner(id, "")
	owner(other, registration.OwnerInstance)
	clear(provider.named)
	clear(provider.addressed)
	owner(other, registration.OwnerServer)
	k.Follow(fleet.Instance{ID: id, Phase: fleet.Running, Rev: 1, Hostname: "asleep.internal", IPs: []string{"10.0.0.7"}})
	owner(id, "") // before the first list of a term
	servers.others.Store(&others{running: Servers{DNS: []string{"asleep.internal"}, IPs: []netip.Addr{addr}}})
	owner(id, registration.OwnerServer)
}

// TestCertified: an instance loses the recorded host name if the provider shows only others of its machine,
// or if it is a server's or another instance's. So a name that was recorded unproved goes, and it can take
// none away from the instance that is shown with it; an answer without names takes none either.
func TestCertified(t *testing.T) {
	const id, other = "knd00vhnczb3efy4867r3gas63hms", "knd00vhnczb3eeapb8hk065vaf1b5"
	servers := NewDirectory(func() Servers { return Servers{DNS: []string{"nstance.internal"}} }, nil, nil)
	k := New(func(fleet.InstanceID) bool { return true }, servers, shown{}, []fleet.Instance{
		{ID: other, Phase: fleet.Running, Rev: 1, Hostname: "db.internal"},
	})
	all := []string{"web.internal", "db.internal", "nstance.internal"}
	for _, c := range []struct {
		recorded, want string
		shown          []string
	}{
		{"", id, all}, {id, id, nil}, {"KND00VHNCZB3EFY4867R3GAS63HMS", id, nil}, {"web.internal", "web.internal", all},
		{"Web.internal", "web.internal", all}, {"web.internal", "web.internal", nil}, {"web.internal", id, []string{"w.internal"}},
		{"db.internal", id, nil},
		{"db.internal", "db.internal", all}, {"nstance.internal", id, all}, {other, id, nil}, {"kubernetes.default.svc", id, all},
	} {
		if got, _ := k.Certified(fleet.Instance{ID: id, Hostname: c.recorded}, c.shown, nil); got != c.want {
			t.Errorf("recorded as %q, shown as %v: certified as %q, want %q", c.recorded, c.shown, got, c.want)
		}
	}
}
