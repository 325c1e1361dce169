package leader

import (
	"context"
	"net/netip"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/delivery"
)

// desiredFiles is what a term tells its delivery of files.
type desiredFiles struct {
	*groups
	*builder
}

var _ delivery.Shard = desiredFiles{}

func (t *Term) newDelivery() (*delivery.Delivery, error) {
	return delivery.New(t.ctx, delivery.Config{
		Shard: desiredFiles{t.groups, t.builder}, CA: t.cfg.CA, Secrets: t.cfg.Secrets, Storage: t.cfg.Store,
		Claim: func(id fleet.InstanceID, keys []string) []string { return t.keys.claim(id, keys...) },
		Bind: func(ctx context.Context, id fleet.InstanceID, keys []string) error {
			return t.records.recordKeys(ctx, id, keys...)
		},
		Log: t.records.LogCertificates, Report: t.problems.report, Settled: t.problems.delivered, Now: t.cfg.Now, Random: t.cfg.Random,
	})
}

// Instance implements delivery.Shard.
func (d desiredFiles) Instance(id fleet.InstanceID) (fleet.Instance, bool) { return d.records.Get(id) }

// Static implements delivery.Shard.
func (d desiredFiles) Static() *config.Shard { return d.config.shard() }

// Facts implements delivery.Shard. Beside what is known when a machine is built,
// files may name what the instance said when it registered, as far as it was let
// through.
func (d desiredFiles) Facts(ctx context.Context, i fleet.Instance, g fleet.Group) (config.Facts, error) {
	f := d.facts(i, g, "")
	if i.Hostname != "" {
		f.Instance.Hostname, f.Instance.FQDN = i.Hostname, i.Hostname
	}
	f.Instance.IP4, f.Instance.IP6 = addresses(i.IPs)
	g.Args, g.Userdata = nil, fleet.Userdata{} // an image that only machines are made with must not hold files up
	var err error
	f.Image, err = d.images.Resolve(ctx, d.imagesOf(g))
	return f, err
}

// addresses are the first of each family, those that only the machine itself can
// reach last.
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
