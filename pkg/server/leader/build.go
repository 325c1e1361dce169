package leader

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/images"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// builder renders the specs of VMs and the facts of instances' files. Safe for concurrent use.
type builder struct {
	cfg       Config
	config    *running
	images    *images.Cache
	templates *config.Templates
	ca        atomic.Pointer[string] // the CA bundle as the last facts have it
}

var _ reconcile.Builder = (*builder)(nil)

// Build implements reconcile.Builder: args and userdata from the group's templates, and a
// registration nonce. The nonce is signed, and valid while the record is pending. It is
// derived from the record, so that a repeated create has the same userdata: a cloud that
// identifies creates by a client token rejects the token with a different body.
func (b *builder) Build(ctx context.Context, i fleet.Instance, g fleet.Group) (provider.Spec, error) {
	issued, expires := nonceLife(i.CreatedAt, b.cfg.Now(), time.Duration(b.config.shard().Server.GarbageCollection.RegistrationTimeout))
	g, err := b.config.shard().ForInstance(g, i)
	if err != nil {
		return provider.Spec{}, err
	}
	token, err := nonce.Mint(b.cfg.NonceKey, nonce.Claims{
		Kind: nonce.KindAgent, Subject: string(i.ID), ClusterID: b.cfg.Boot.Cluster.ID, Tenant: i.Tenant, Shard: b.cfg.Static.Shard,
		ConfigHash: g.Hashes.Runtime, ID: string(i.ID), IssuedAt: issued, NotBefore: issued, ExpiresAt: expires,
	})
	if err != nil {
		return provider.Spec{}, err
	}
	facts := b.facts(i, g, token)
	if facts.Image, err = b.images.Resolve(ctx, b.imagesOf(g)); err != nil {
		return provider.Spec{}, err
	}
	values := b.templates.For(facts)
	args, err := values.Args(g.Args)
	if err != nil {
		return provider.Spec{}, err
	}
	userdata, err := values.Userdata(g.Userdata)
	if err != nil {
		return provider.Spec{}, err
	}
	return provider.Spec{
		ID: i.ID, Hostname: string(i.ID), Arch: g.Arch, InstanceType: instanceType(i, g),
		Args: args, Userdata: userdata,
		Tags: provider.Scope{ClusterID: b.cfg.Boot.Cluster.ID, Shard: b.cfg.Static.Shard}.Tags(i),
		Bootstrap: provider.Bootstrap{
			CACert: b.cfg.Bundle(), Nonce: token,
			RegistrationAddrs: b.cfg.Instances.Registration, AgentAddrs: b.cfg.Instances.Agent,
			ReportInterval: time.Duration(b.config.shard().Server.Health.ReportInterval),
		},
	}, nil
}

// nonceLife returns the validity of the nonce of an instance that was recorded at created. The
// result is the same for all creates within one timeout period since then, and at least one
// timeout remains whenever it is called. A created time in the future, from a clock that is
// ahead, counts as now. Servers compare nonces to the wall clock.
func nonceLife(created, now time.Time, timeout time.Duration) (issued, expires time.Time) {
	created, now = created.Round(0), now.Round(0)
	issued = now
	if !created.IsZero() && created.Before(now) {
		issued = created.Add(now.Sub(created).Truncate(timeout))
	}
	return issued, issued.Add(2 * timeout)
}

func (b *builder) facts(i fleet.Instance, g fleet.Group, token string) config.Facts {
	p, at := b.cfg.Boot.Server.Provider, b.cfg.Instances // the provider as opened
	return config.Facts{
		Instance: config.InstanceFacts{
			ID: string(i.ID), Kind: g.Kind, Arch: g.Arch, Type: instanceType(i, g), Hostname: string(i.ID), FQDN: string(i.ID),
		},
		Cluster: config.ClusterFacts{ID: b.cfg.Boot.Cluster.ID, CACert: b.caText()},
		Server: config.ServerFacts{
			Shard: b.cfg.Static.Shard, RegistrationAddr: strings.Join(at.Registration, ","), AgentAddr: strings.Join(at.Agent, ","),
			OperatorAddr: b.cfg.OperatorAddr,
		},
		Provider: config.ProviderFacts{Kind: p.Kind, Region: p.Region, Zone: p.Zone},
		Vars:     g.Vars,
		Nonce:    token,
	}
}

// caText returns the CA bundle, PEM: the same string each time, since what is known of each instance has
// its facts.
func (b *builder) caText() string {
	pem := b.cfg.Bundle()
	if last := b.ca.Load(); last != nil && *last == string(pem) {
		return *last
	}
	text := string(pem)
	b.ca.Store(&text)
	return text
}

func instanceType(i fleet.Instance, g fleet.Group) string {
	if i.Provider.InstanceType != "" {
		return i.Provider.InstanceType
	}
	return g.InstanceType
}
