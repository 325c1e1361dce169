// Package identities knows which names, addresses and public keys belong to which instance or
// server, so that none of them is certified for another instance.
package identities

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/registration"
)

// Identities maps names and addresses to their owners, so that none is certified for an
// instance if it belongs to a server or to another living instance. For this shard's instances
// it uses their records and the provider's data; of other shards' instances it knows only that
// IDs are names. Safe for concurrent use.
type Identities struct {
	living   func(fleet.InstanceID) bool // must not wait for a write
	servers  *Directory
	machines Machines

	mu        sync.Mutex
	names     fleet.Holders[string] // lowercase
	addresses fleet.Holders[netip.Addr]
	held      map[fleet.InstanceID]identity
}

// Machines is the provider's last known data of VMs that have not ended.
type Machines interface {
	Named(name string) []fleet.InstanceID
	NamedBelow(domain string) []fleet.InstanceID
	Addressed(addr netip.Addr) []fleet.InstanceID
}

// identity is the name and the addresses in an instance's record.
type identity struct {
	rev       uint64 // of its record
	name      string
	addresses []netip.Addr
}

// New returns the identities of the living instances. living reports whether an instance lives.
func New(
	living func(fleet.InstanceID) bool, servers *Directory, machines Machines, records []fleet.Instance,
) *Identities {
	k := &Identities{
		living: living, servers: servers, machines: machines,
		names: fleet.Holders[string]{}, addresses: fleet.Holders[netip.Addr]{}, held: map[fleet.InstanceID]identity{},
	}
	for _, i := range records {
		k.Follow(i)
	}
	return k
}

// Follow applies a record; one of a deleted instance releases its identity. Records may arrive
// out of order: an older one is ignored.
func (k *Identities) Follow(i fleet.Instance) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.living(i.ID) { // regardless of i, which may be stale
		k.release(i.ID)
		return
	}
	if k.held[i.ID].rev > i.Rev {
		return
	}
	k.release(i.ID)
	now := identity{rev: i.Rev, name: strings.ToLower(i.Hostname)}
	if now.name != "" {
		k.names.Add(now.name, i.ID)
	}
	for _, text := range i.IPs {
		if addr, err := netip.ParseAddr(text); err == nil && !addr.IsLoopback() {
			now.addresses = append(now.addresses, addr)
			k.addresses.Add(addr, i.ID)
		}
	}
	k.held[i.ID] = now
}

// release removes an instance's identity. The caller holds mu.
func (k *Identities) release(id fleet.InstanceID) {
	was, ok := k.held[id]
	if !ok {
		return
	}
	k.names.Remove(was.name, id)
	for _, addr := range was.addresses {
		k.addresses.Remove(addr, id)
	}
	delete(k.held, id)
}

// NameOwner returns the owner of a host name: a server, another living instance, or empty if
// only the instance itself may own it. A name in the form of an ID belongs to that instance,
// whether it lives or not, and whatever its shard.
func (k *Identities) NameOwner(id fleet.InstanceID, name string) registration.Owner {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == strings.ToLower(string(id)) {
		return ""
	}
	if k.servers.Name(name) {
		return registration.OwnerServer
	}
	if _, err := fleet.ParseID(name); err == nil {
		return registration.OwnerInstance
	}
	k.mu.Lock()
	recorded := k.names[name]
	k.mu.Unlock()
	shown := k.machines.Named(name)
	return k.owner(id, recorded, shown, k.servers.stopped().Name(name))
}

// AddressOwner is NameOwner for an address. Loopback addresses have no owner.
func (k *Identities) AddressOwner(id fleet.InstanceID, addr netip.Addr) registration.Owner {
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() {
		return ""
	}
	if k.servers.Address(addr) {
		return registration.OwnerServer
	}
	k.mu.Lock()
	recorded := k.addresses[addr]
	k.mu.Unlock()
	shown := k.machines.Addressed(addr)
	return k.owner(id, recorded, shown, k.servers.stopped().Address(addr))
}

// owner decides by the instances whose records hold a name or an address, and those that the
// provider shows with it. A recorded one belongs to that instance alone: the provider may show
// it for two machines, because one of its results is stale. stopped: a server that has stopped had it.
func (k *Identities) owner(id fleet.InstanceID, recorded, shown []fleet.InstanceID, stopped bool) registration.Owner {
	switch {
	case heldByAnother(recorded, id, k.living):
		return registration.OwnerInstance
	case slices.Contains(recorded, id):
		return ""
	case heldByAnother(shown, id, k.living):
		return registration.OwnerInstance
	case stopped && !slices.Contains(shown, id):
		return registration.OwnerServer
	default:
		return ""
	}
}

// RefreshServers implements registration.Shard.
func (k *Identities) RefreshServers(ctx context.Context) error { return k.servers.refresh(ctx) }

// Certified returns the host name and the addresses that an instance may be certified for, by the
// lowercase names and the addresses that the provider shows of its machine. The host name is the recorded
// one, unless only others are shown, or it is a server's or another instance's: then it is the instance's id.
// One that is shown stays even if another record has it, too: Permit refuses it until that one is corrected.
func (k *Identities) Certified(i fleet.Instance, names []string, shown []netip.Addr) (hostname string, addresses []netip.Addr) {
	hostname = strings.ToLower(i.Hostname)
	shownName := slices.Contains(names, hostname)
	if hostname == "" || k.servers.Name(hostname) || !shownName && (len(names) > 0 || k.NameOwner(i.ID, hostname) != "") {
		hostname = string(i.ID)
	}
	return hostname, slices.DeleteFunc(slices.Clone(shown), func(a netip.Addr) bool { return k.AddressOwner(i.ID, a) != "" })
}

// Permit returns an error if a certificate request of an instance names what the instance does
// not own: templates and vars can render anything. It checks host names and addresses, and
// each word of all text of the certificate, percent-encoded or not.
func (k *Identities) Permit(id fleet.InstanceID, r *pki.LeafRequest) error {
	if owner := k.pattern(id, r.CN); owner != "" {
		return fmt.Errorf("cn %.80q is %s, which a certificate of this instance must not name", r.CN, owner)
	}
	for _, name := range r.DNS {
		if owner := k.pattern(id, name); owner != "" {
			return fmt.Errorf("dns %.80q is %s, which a certificate of this instance must not name", name, owner)
		}
	}
	for _, addr := range r.IP {
		if owner := k.AddressOwner(id, addr); owner != "" {
			return fmt.Errorf("ip %s is %s, which a certificate of this instance must not name", addr, owner)
		}
	}
	for _, text := range r.URI {
		if owner := k.hostIn(id, text); owner != "" {
			return fmt.Errorf("the host of uri %.80q is %s, which a certificate of this instance must not name", text, owner)
		}
	}
	for _, text := range slices.Concat([]string{r.CN}, r.Organization, r.DNS, r.URI) {
		word, owner, err := k.ownedIn(id, text)
		if err != nil {
			return fmt.Errorf("%.80q: %w", text, err)
		}
		if owner != "" {
			return fmt.Errorf("%.80q contains %q, which is %s: a certificate of this instance must not name it", text, word, owner)
		}
	}
	return nil
}

// pattern is NameOwner for a name that may begin with a wildcard label.
func (k *Identities) pattern(id fleet.InstanceID, name string) registration.Owner {
	domain, wild := strings.CutPrefix(strings.ToLower(name), "*.")
	if !wild {
		if addr, err := netip.ParseAddr(name); err == nil {
			return k.AddressOwner(id, addr)
		}
		return k.NameOwner(id, name)
	}
	if k.servers.Below(domain) {
		return registration.OwnerServer
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, holders := range k.names {
		if _, parent, ok := strings.Cut(name, "."); ok && parent == domain && k.owner(id, holders, nil, false) != "" {
			return registration.OwnerInstance
		}
	}
	return k.owner(id, nil, k.machines.NamedBelow(domain), false)
}

// hostIn returns the owner of the host in a URI, in any of its forms.
func (k *Identities) hostIn(id fleet.InstanceID, text string) registration.Owner {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return "" // an invalid URI is refused when the certificate is signed
	}
	hosts, _ := forms(u.Hostname()) // ownedIn refuses a text with more
	for _, host := range hosts {
		if owner := k.pattern(id, host); owner != "" {
			return owner
		}
	}
	return ""
}

// has reports whether an address is the instance's, by its record or the provider.
func (k *Identities) has(id fleet.InstanceID, addr netip.Addr) bool {
	k.mu.Lock()
	recorded := slices.Contains(k.addresses[addr], id)
	k.mu.Unlock()
	return recorded || slices.Contains(k.machines.Addressed(addr), id)
}

// ownedIn returns the first word of a text, in any of its forms, that is an id, a name or an address
// of another, and its owner; an error if the text has too many forms to look through.
func (k *Identities) ownedIn(id fleet.InstanceID, text string) (word string, owner registration.Owner, err error) {
	texts, complete := forms(text)
	for _, text := range texts {
		for name := range wordsIn(text) {
			if owner := k.NameOwner(id, name); owner != "" {
				return name, owner, nil
			}
		}
		for addr := range addressesIn(text, func(addr netip.Addr) bool { return k.has(id, addr) }) {
			if owner := k.AddressOwner(id, addr); owner != "" {
				return addr.String(), owner, nil
			}
		}
	}
	if !complete {
		return "", "", errors.New("percent-encodings are nested too deeply")
	}
	return "", "", nil
}
