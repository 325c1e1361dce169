package workload

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Node is created by its kubelet, which sets the provider ID. So a Node that claims to be a
// machine's is no proof: it is accepted only while nothing contradicts it.

// AmbiguousError says that it is unclear which Node is a machine's.
type AmbiguousError struct {
	// Why names the candidates with their provider IDs, the one that is expected, and a remedy.
	Why   string
	Nodes []corev1.Node
}

func (e *AmbiguousError) Error() string { return e.Why }

// Identity is what a machine's Node is recognized by.
type Identity struct {
	// ProviderID is the one that the machine's kubelet should set; empty: unknown.
	ProviderID string
	// Names are the machine's own, in lower case: its instance's ID, and its host name.
	Names []string
	// Seen are names under which its Node was found before.
	Seen []string
	// Addresses are those of the machine, without loopback and link-local ones.
	Addresses []netip.Addr
	// Other reports whether a provider ID is certainly another machine's; nil: that is unknown.
	Other func(providerID string) bool
}

// Identify returns the identity of an instance with that ID, and with the host name and the IP
// addresses that its server reports, as far as it does.
func Identify(providerID, id, hostname string, ips []string) Identity {
	w := Identity{ProviderID: providerID}
	for _, name := range []string{id, strings.ToLower(hostname)} {
		if name != "" && !slices.Contains(w.Names, name) {
			w.Names = append(w.Names, name)
		}
	}
	for _, text := range ips {
		ip, err := netip.ParseAddr(text)
		if err == nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsUnspecified() {
			w.Addresses = append(w.Addresses, ip.Unmap())
		}
	}
	return w
}

// Saw adds a name under which the machine's Node was found.
func (w *Identity) Saw(name string) {
	if name != "" && !slices.Contains(w.Names, name) && !slices.Contains(w.Seen, name) {
		w.Seen = append(w.Seen, name)
	}
}

// HasID reports whether a Node has the machine's provider ID.
func (w *Identity) HasID(n *corev1.Node) bool {
	return w.ProviderID != "" && n.Spec.ProviderID == w.ProviderID
}

func (w *Identity) hasName(n *corev1.Node) bool { return slices.Contains(w.Names, n.Name) }

// resembles reports whether a Node has a name under which the machine's was found before, or
// one of its addresses.
func (w *Identity) resembles(n *corev1.Node) bool {
	return slices.Contains(w.Seen, n.Name) || slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			return false
		}
		ip, err := netip.ParseAddr(a.Address)
		return err == nil && slices.Contains(w.Addresses, ip.Unmap())
	})
}

// MayBe reports whether a Node could be the machine's, so that Choose has to know of it.
func (w *Identity) MayBe(n *corev1.Node) bool { return w.HasID(n) || w.hasName(n) || w.resembles(n) }

// Proven reports whether a Node has the machine's own name and no other provider ID: whatever
// other Nodes claim, this one is the machine's.
func (w *Identity) Proven(n *corev1.Node) bool {
	return w.hasName(n) && (n.Spec.ProviderID == "" || w.HasID(n))
}

// Choose returns the machine's Node out of all; nil without an error if there is none. It is
// the one with the provider ID, under any name, or one with the machine's name and no provider
// ID. The error is an *AmbiguousError if several match, if the one that does has another
// provider ID, or if none does, but one has the machine's address, or the name under which its
// Node was found before: networks of several shards may use the same addresses, and names are
// used again.
func (w *Identity) Choose(all []corev1.Node) (*corev1.Node, error) {
	var mine []corev1.Node
	for i := range all {
		if w.HasID(&all[i]) || w.hasName(&all[i]) {
			mine = append(mine, all[i])
		}
	}
	if len(mine) == 1 && (w.HasID(&mine[0]) || mine[0].Spec.ProviderID == "") {
		return &mine[0], nil
	}
	if len(mine) == 0 {
		mine = w.resembling(all)
	}
	if len(mine) == 0 {
		return nil, nil //nolint:nilnil // documented
	}
	return nil, w.ambiguous(mine)
}

// resembling returns the Nodes that resemble the machine's, without those of other machines.
func (w *Identity) resembling(all []corev1.Node) (some []corev1.Node) {
	for i := range all {
		if w.resembles(&all[i]) && !w.another(all[i].Spec.ProviderID) {
			some = append(some, all[i])
		}
	}
	return some
}

func (w *Identity) another(providerID string) bool {
	return providerID != "" && w.Other != nil && w.Other(providerID)
}

func (w *Identity) ambiguous(mine []corev1.Node) error {
	slices.SortFunc(mine, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	said := make([]string, len(mine))
	for n := range mine {
		said[n] = fmt.Sprintf("%s (providerID %q)", mine[n].Name, mine[n].Spec.ProviderID)
		if !w.HasID(&mine[n]) && !w.hasName(&mine[n]) {
			said[n] = fmt.Sprintf("%s (providerID %q, with an address or a former name of the instance)", mine[n].Name, mine[n].Spec.ProviderID)
		}
	}
	return &AmbiguousError{Nodes: mine, Why: fmt.Sprintf(
		"the instance's node is ambiguous: want one with providerID %q, or named %s without a providerID; found %s: %s",
		w.ProviderID, strings.Join(w.Names, " or "), strings.Join(said, ", "), w.remedy(mine))}
}

// remedy says what makes the machine's Node unambiguous.
func (w *Identity) remedy(mine []corev1.Node) string {
	id := w.ProviderID
	if id == "" {
		id = "(not known yet)"
	}
	switch one := &mine[0]; {
	case !w.HasID(one) && !w.hasName(one): // all of them only resemble it, and may be of another network
		return fmt.Sprintf("if one of them is the instance's, start its kubelet with --provider-id=%s, or set an empty providerID: "+
			"kubectl patch node NAME -p '{\"spec\":{\"providerID\":%q}}'; if none is, wait for the end of the drain, and delete none", id, id)
	case len(mine) > 1:
		return "delete the Nodes that are not the instance's"
	default: // without the Node, the drain would end without evictions
		return "start its kubelet with --provider-id=" + id + ", and let no cloud controller set another"
	}
}

// NodeOf returns a copy of a machine's Node, chosen from the cached Nodes with its provider ID or
// one of its names; nil if there is none. The error is an *AmbiguousError if it is unclear which
// one it is.
func (c *Cluster) NodeOf(ctx context.Context, w Identity) (*corev1.Node, error) {
	all, err := c.NodesWith(ctx, w)
	if err != nil {
		return nil, err
	}
	return w.Choose(all)
}

// NodesWith returns copies of the cached Nodes with a machine's provider ID or one of its
// names.
func (c *Cluster) NodesWith(ctx context.Context, w Identity) ([]corev1.Node, error) {
	all, err := c.NodesByProviderID(ctx, w.ProviderID)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Concat(w.Names, w.Seen) {
		if slices.ContainsFunc(all, func(o corev1.Node) bool { return o.Name == name }) {
			continue
		}
		var n corev1.Node
		err := c.Client().Get(ctx, client.ObjectKey{Name: name}, &n)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil {
			all = append(all, n)
		}
	}
	return all, nil
}
