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
	"unicode"

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
	if k.servers.known().Name(name) {
		return registration.OwnerServer
	}
	if _, err := fleet.ParseID(name); err == nil {
		return registration.OwnerInstance
	}
	k.mu.Lock()
	recorded := k.names[name]
	k.mu.Unlock()
	return k.owner(id, recorded, k.machines.Named(name))
}

// AddressOwner is NameOwner for an address. Loopback addresses have no owner.
func (k *Identities) AddressOwner(id fleet.InstanceID, addr netip.Addr) registration.Owner {
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() {
		return ""
	}
	if k.servers.known().Address(addr) {
		return registration.OwnerServer
	}
	k.mu.Lock()
	recorded := k.addresses[addr]
	k.mu.Unlock()
	return k.owner(id, recorded, k.machines.Addressed(addr))
}

// owner decides by the instances whose records hold a name or an address, and those that the
// provider shows with it. A recorded one belongs to that instance alone: the provider may show
// it for two machines, because one of its results is stale.
func (k *Identities) owner(id fleet.InstanceID, recorded, shown []fleet.InstanceID) registration.Owner {
	switch {
	case heldByAnother(recorded, id, k.living):
		return registration.OwnerInstance
	case slices.Contains(recorded, id):
		return ""
	case heldByAnother(shown, id, k.living):
		return registration.OwnerInstance
	default:
		return ""
	}
}

// RefreshServers implements registration.Shard.
func (k *Identities) RefreshServers(ctx context.Context) error { return k.servers.refresh(ctx) }

// Certified returns those of the addresses that an instance may be certified for.
func (k *Identities) Certified(id fleet.InstanceID, shown []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(shown), func(a netip.Addr) bool { return k.AddressOwner(id, a) != "" })
}

// Permit returns an error if a certificate request of an instance names what the instance does
// not own: templates and vars can render anything. It checks host names and addresses, and
// looks for other instances' IDs in all text of the certificate, percent-encoded or not.
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
		word, err := k.instanceIn(id, text)
		if err != nil {
			return fmt.Errorf("%.80q: %w", text, err)
		}
		if word != "" {
			return fmt.Errorf("%.80q names another instance, %q, which a certificate of this instance must not", text, word)
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
	if k.servers.known().Below(domain) {
		return registration.OwnerServer
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, holders := range k.names {
		if _, parent, ok := strings.Cut(name, "."); ok && parent == domain && k.owner(id, holders, nil) != "" {
			return registration.OwnerInstance
		}
	}
	return k.owner(id, nil, k.machines.NamedBelow(domain))
}

// hostIn returns the owner of the host in a URI, in any of its forms.
func (k *Identities) hostIn(id fleet.InstanceID, text string) registration.Owner {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return "" // an invalid URI is refused when the certificate is signed
	}
	hosts, _ := forms(u.Hostname()) // instanceIn refuses a text with more
	for _, host := range hosts {
		if owner := k.pattern(id, host); owner != "" {
			return owner
		}
	}
	return ""
}

// instanceIn returns the first word of a text, in any of its forms, that is another instance's
// id or name; an error if the text has too many forms to look through.
func (k *Identities) instanceIn(id fleet.InstanceID, text string) (string, error) {
	alphanumeric := func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }
	texts, complete := forms(text)
	for _, text := range texts {
		names := strings.FieldsFunc(text, func(c rune) bool { return !alphanumeric(c) && c != '.' && c != '-' })
		ids := strings.FieldsFunc(text, func(c rune) bool { return !alphanumeric(c) })
		for _, word := range append(names, ids...) {
			if k.NameOwner(id, word) == registration.OwnerInstance {
				return word, nil
			}
		}
	}
	if !complete {
		return "", errors.New("percent-encodings are nested too deeply")
	}
	return "", nil
}
