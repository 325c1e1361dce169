package leader

import (
	"context"
	"net/netip"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/groups"
	"github.com/nstance/nstance/pkg/server/identities"
	"github.com/nstance/nstance/pkg/server/writes"
)

// desiredFiles is the term as its file delivery sees it.
type desiredFiles struct {
	*groups.Groups
	*builder
	known   *identities.Identities
	records writes.Records
}

var _ delivery.Shard = desiredFiles{}

func (t *Term) newDelivery() (*delivery.Delivery, error) {
	return delivery.New(t.ctx, delivery.Config{
		Shard: desiredFiles{t.groups, t.builder, t.known, t.records}, CA: t.cfg.CA, Secrets: t.cfg.Secrets, Storage: t.cfg.Store,
		Permit: t.known.Permit,
		Claim:  func(id fleet.InstanceID, keys []string) []string { return t.keys.Claim(id, keys...) },
		Bind: func(ctx context.Context, id fleet.InstanceID, keys []string) error {
			return recordKeys(ctx, t.records, id, keys...)
		},
		Log: t.records.LogCertificates, Report: t.problems.Set, Settled: t.delivered,
		Trace: func(key fleet.GroupKey, id fleet.InstanceID) (string, func(error)) {
			return t.cfg.Edits.Deliver(t.ctx, key, id)
		},
		Now: t.cfg.Now, Random: t.cfg.Random,
	})
}

// Instance implements delivery.Shard.
func (d desiredFiles) Instance(id fleet.InstanceID) (fleet.Instance, bool) { return d.records.Get(id) }

// Static implements delivery.Shard.
func (d desiredFiles) Static() *config.Shard { return d.config.shard() }

// Values implements delivery.Shard. Besides what is known when a machine is built, files may
// use the host name, the addresses and the provider ID in the instance's record; none is taken
// from what the machine itself claims.
func (d desiredFiles) Values(ctx context.Context, i fleet.Instance, g fleet.Group) (config.Values, error) {
	f := d.facts(i, g, "")
	if i.Hostname != "" {
		f.Instance.Hostname, f.Instance.FQDN = i.Hostname, i.Hostname
	}
	f.Instance.IP4, f.Instance.IP6 = addresses(i.IPs)
	f.Instance.NodeProviderID = fleet.NodeProviderID(f.Provider.Kind, f.Provider.Zone, i.Provider.ID)
	g.Args, g.Userdata = nil, fleet.Userdata{} // an image used only by machines must not block files
	if delivery.HasCertificates(g) {
		if err := d.known.RefreshServers(ctx); err != nil {
			return config.Values{}, err
		}
	}
	var err error
	f.Image, err = d.images.Resolve(ctx, d.imagesOf(g))
	return d.templates.For(f), err
}

// addresses returns the first address of each family, and a loopback or link-local one only if
// there is no other.
func addresses(ips []string) (ip4, ip6 string) {
	for _, nearby := range []bool{false, true} {
		for _, text := range ips {
			ip, err := netip.ParseAddr(text)
			to := &ip6
			if ip.Is4() {
				to = &ip4
			}
			if err == nil && *to == "" && (ip.IsLoopback() || ip.IsLinkLocalUnicast()) == nearby {
				*to = ip.String()
			}
		}
	}
	return ip4, ip6
}
