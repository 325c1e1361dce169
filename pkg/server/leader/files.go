package leader

import (
	"context"
	"net/netip"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// This file is what a term offers to its delivery of files.

func (t *Term) deliveryConfig() delivery.Config {
	return delivery.Config{
		Shard: deliveryShard{t}, CA: t.cfg.CA, Secrets: t.cfg.Secrets, Storage: t.cfg.Store,
		Log:    t.logCertificates,
		Report: t.troubles.report, Settled: t.troubles.delivered,
		Now: t.cfg.Now, Random: t.cfg.Random,
	}
}

// logCertificates makes a batch durable. It needs no fence: a certificate that a
// former leader logged and never delivered does nobody any harm.
func (t *Term) logCertificates(ctx context.Context, b ledger.CertificateBatch) error {
	return t.writes.do(ctx, func(ctx context.Context) error { return t.ledger.LogCertificates(ctx, b) })
}

// deliveryShard is what a term tells its delivery.
type deliveryShard struct{ *Term }

var _ delivery.Shard = deliveryShard{}

// Instance implements delivery.Shard.
func (s deliveryShard) Instance(id fleet.InstanceID) (fleet.Instance, bool) { return s.ledger.Get(id) }

// Static implements delivery.Shard.
func (s deliveryShard) Static() *config.Shard { return s.static.shard() }

// Facts implements delivery.Shard. Beside what is known when a machine is built,
// files may name what the instance said when it registered, as far as it was let
// through.
func (s deliveryShard) Facts(ctx context.Context, i fleet.Instance, g fleet.Group) (config.Facts, error) {
	f := s.facts(i, g, "")
	if i.Hostname != "" {
		f.Instance.Hostname, f.Instance.FQDN = i.Hostname, i.Hostname
	}
	f.Instance.IP4, f.Instance.IP6 = addresses(i.IPs)
	g.Args, g.Userdata = nil, fleet.Userdata{} // an image that only machines are made with must not hold files up
	var err error
	f.Image, err = s.images.Resolve(ctx, s.imagesOf(g))
	return f, err
}

// addresses are the first of each family, those that only the machine itself can
// reach last.
func addresses(ips []string) (ip4, ip6 string) {
	var local4, local6 string
	for _, text := range ips {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		to := &ip6
		switch nearby := ip.IsLoopback() || ip.IsLinkLocalUnicast(); {
		case ip.Is4() && nearby:
			to = &local4
		case ip.Is4():
			to = &ip4
		case nearby:
			to = &local6
		}
		if *to == "" {
			*to = ip.String()
		}
	}
	if ip4 == "" {
		ip4 = local4
	}
	if ip6 == "" {
		ip6 = local6
	}
	return ip4, ip6
}

// filesTroubleLife outlasts the pause between two attempts to deliver. A problem
// that was not told again since then went with the instance that had it.
const filesTroubleLife = time.Hour

// filesFail reports whether a problem keeps files from instances that are there.
func filesFail(p fleet.Problem, now time.Time) bool {
	return p.Reason == delivery.ReasonFiles && now.Sub(p.At) < filesTroubleLife
}

// delivered hears that a group's files get through again.
func (t *troubles) delivered(key fleet.GroupKey) {
	t.mu.Lock()
	last := t.last[key]
	mine := last.Reason == delivery.ReasonFiles || last.Reason == delivery.ReasonStorage && last.Instance == ""
	if mine {
		delete(t.last, key)
	}
	t.mu.Unlock()
	if mine {
		t.told(key)
	}
}
