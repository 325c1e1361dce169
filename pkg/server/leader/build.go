package leader

import (
	"context"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/provider"
)

// Build renders what an instance's VM is created with: args and userdata from
// the group's templates, and a registration nonce. The nonce is good by its
// signature while the record is pending, so building again for the same
// instance makes another one that is just as good.
func (t *Term) Build(ctx context.Context, i fleet.Instance, g fleet.Group) (provider.Spec, error) {
	now := t.cfg.Now()
	g, err := t.static.shard().ForInstance(g, i)
	if err != nil {
		return provider.Spec{}, err
	}
	token, err := nonce.Mint(t.cfg.NonceKey, nonce.Claims{
		Kind: nonce.KindAgent, Subject: string(i.ID), ClusterID: t.cfg.Boot.Cluster.ID, Tenant: i.Tenant, Shard: t.cfg.Static.Shard,
		ConfigHash: g.Hashes.Runtime, ID: string(i.ID), IssuedAt: now, NotBefore: now,
		ExpiresAt: now.Add(time.Duration(t.static.shard().Server.GarbageCollection.RegistrationTimeout)),
	})
	if err != nil {
		return provider.Spec{}, err
	}
	facts := t.facts(i, g, token)
	if facts.Image, err = t.images.Resolve(ctx, t.imagesOf(g)); err != nil {
		return provider.Spec{}, err
	}
	args, err := config.RenderArgs(g.Args, facts)
	if err != nil {
		return provider.Spec{}, err
	}
	userdata, err := config.RenderUserdata(g.Userdata, facts)
	if err != nil {
		return provider.Spec{}, err
	}
	return provider.Spec{
		ID: i.ID, Hostname: string(i.ID), Arch: g.Arch, InstanceType: instanceType(i, g),
		Args: args, Userdata: userdata,
		Tags: provider.Scope{ClusterID: t.cfg.Boot.Cluster.ID, Shard: t.cfg.Static.Shard}.Tags(i),
		Bootstrap: provider.Bootstrap{
			CACert: t.cfg.Bundle(), Nonce: token,
			RegistrationAddrs: t.cfg.Instances.Registration, AgentAddrs: t.cfg.Instances.Agent,
			ReportInterval: time.Duration(t.static.shard().Server.Health.ReportInterval),
		},
	}, nil
}

func (t *Term) facts(i fleet.Instance, g fleet.Group, token string) config.Facts {
	p := t.cfg.Boot.Server.Provider // the one that was opened
	return config.Facts{
		Instance: config.InstanceFacts{
			ID: string(i.ID), Kind: g.Kind, Arch: g.Arch, Type: instanceType(i, g), Hostname: string(i.ID), FQDN: string(i.ID),
		},
		Cluster:  config.ClusterFacts{ID: t.cfg.Boot.Cluster.ID, CACert: string(t.cfg.Bundle())},
		Server:   config.ServerFacts{Shard: t.cfg.Static.Shard, RegistrationAddr: strings.Join(t.cfg.Instances.Registration, ","), AgentAddr: strings.Join(t.cfg.Instances.Agent, ","), OperatorAddr: t.cfg.OperatorAddr},
		Provider: config.ProviderFacts{Kind: p.Kind, Region: p.Region, Zone: p.Zone},
		Vars:     g.Vars,
		Nonce:    token,
	}
}

func instanceType(i fleet.Instance, g fleet.Group) string {
	if i.Provider.InstanceType != "" {
		return i.Provider.InstanceType
	}
	return g.InstanceType
}
