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
// ID. Only if no Node has either, one without a provider ID is it that has the machine's
// address, or the name under which its Node was found before: networks of several shards may
// use the same addresses, and names are used again. If several match, or the one that does has
// another provider ID, the error is an *AmbiguousError.
func (w *Identity) Choose(all []corev1.Node) (*corev1.Node, error) {
	var mine []corev1.Node
	for i := range all {
		if w.HasID(&all[i]) || w.hasName(&all[i]) {
			mine = append(mine, all[i])
		}
	}
	if len(mine) == 0 {
		for i := range all {
			if w.resembles(&all[i]) && !w.another(all[i].Spec.ProviderID) {
				mine = append(mine, all[i])
			}
		}
	}
	switch {
	case len(mine) == 0:
		return nil, nil //nolint:nilnil // documented
	case len(mine) == 1 && (w.HasID(&mine[0]) || mine[0].Spec.ProviderID == ""):
		return &mine[0], nil
	}
	return nil, w.ambiguous(mine)
}

func (w *Identity) another(providerID string) bool {
	return providerID != "" && w.Other != nil && w.Other(providerID)
}

func (w *Identity) ambiguous(mine []corev1.Node) error {
	slices.SortFunc(mine, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	said := make([]string, len(mine))
	for n := range mine {
		said[n] = fmt.Sprintf("%s (providerID %q)", mine[n].Name, mine[n].Spec.ProviderID)
	}
	remedy := "delete the Nodes that are not the instance's"
	if len(mine) == 1 { // deleting it would let the drain end without evictions
		remedy = "start its kubelet with --provider-id=" + w.ProviderID + ", and let no cloud controller set another"
	}
	return &AmbiguousError{Nodes: mine, Why: fmt.Sprintf(
		"the instance's node is ambiguous: want one with providerID %q, or named %s without a providerID; found %s: %s",
		w.ProviderID, strings.Join(w.Names, " or "), strings.Join(said, ", "), remedy)}
}

// NodeOf returns a copy of a machine's Node, chosen from the cache; nil if there is none. The
// error is an *AmbiguousError if it is unclear which one it is.
func (c *Cluster) NodeOf(ctx context.Context, w Identity) (*corev1.Node, error) {
	all, err := c.NodesWith(ctx, w)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		if all, err = c.nodesAt(ctx, w.Addresses); err != nil {
			return nil, err
		}
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

// nodesAt returns copies of the cached Nodes with one of these addresses.
func (c *Cluster) nodesAt(ctx context.Context, addresses []netip.Addr) ([]corev1.Node, error) {
	l, err := c.now()
	if err != nil {
		return nil, err
	}
	var all []corev1.Node
	for _, ip := range addresses {
		var nodes corev1.NodeList
		if err := l.client.List(ctx, &nodes, client.MatchingFields{byAddress: ip.String()}); err != nil {
			return nil, fmt.Errorf("find the node with address %s: %w", ip, err)
		}
		for i := range nodes.Items {
			if !slices.ContainsFunc(all, func(o corev1.Node) bool { return o.Name == nodes.Items[i].Name }) {
				all = append(all, nodes.Items[i])
			}
		}
	}
	return all, nil
}

// Addresses returns a Node's IP addresses, as they are compared with those of machines.
func Addresses(n *corev1.Node) []string {
	var all []string
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && (a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP) {
			all = append(all, ip.Unmap().String())
		}
	}
	return all
}
