package registration

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/tracing"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// RegisterAgent verifies the nonce, binds the key by setting the instance to running, and
// issues a certificate.
func (s *Service) RegisterAgent(ctx context.Context, req *nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
	claimed(ctx, req.GetNonce(), req.GetPublicKey(), req.GetHostname(), req.GetIps())
	shard, err := s.cfg.Shard()
	if err != nil {
		return nil, err
	}
	claims, key, err := s.verify(req.GetNonce(), req.GetPublicKey(),
		nonce.Want{Kind: nonce.KindAgent, ClusterID: s.cfg.ClusterID, Shard: s.cfg.ShardID})
	if claims.Subject == "" {
		return nil, err
	}
	proven(ctx, claims)
	id, invalid := fleet.ParseID(claims.Subject)
	if invalid != nil {
		return nil, refused(invalid)
	}
	ctx, end := s.cfg.Tracer.Start(s.cfg.Tracer.OfInstance(ctx, string(id)), tracing.Server, "register")
	var identity *nstancev1.Identity
	if err == nil {
		identity, err = s.admit(ctx, shard, id, claims, key, req)
	}
	end(err)
	if err != nil {
		shard.RegistrationRefused(claims.Tenant, id, err)
		return nil, err
	}
	shard.Registered(id)
	s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "agent registered",
		slog.String("instance", string(id)), slog.String("tenant", claims.Tenant))
	return &nstancev1.RegisterAgentResponse{Identity: identity}, nil
}

// admit checks the agent's claims, binds its key and issues a certificate.
func (s *Service) admit(
	ctx context.Context, shard Shard, id fleet.InstanceID, token nonce.Claims, key ed25519.PublicKey, req *nstancev1.RegisterAgentRequest,
) (*nstancev1.Identity, error) {
	said, err := parseClaims(req)
	if err != nil {
		return nil, err
	}
	i, err := s.bind(ctx, shard, id, token, pki.PublicKeySHA256(key), said)
	if err != nil {
		return nil, err
	}
	return s.identity(s.cfg.CA.IssueAgent, i.Tenant, id, key)
}

// bind spends the nonce: its first key becomes the instance's.
func (s *Service) bind(
	ctx context.Context, shard Shard, id fleet.InstanceID, token nonce.Claims, fingerprint string, said claims,
) (fleet.Instance, error) {
	i, err := shard.Instance(ctx, token.Tenant, id)
	if err != nil {
		return fleet.Instance{}, err
	}
	if i.Tenant != token.Tenant {
		return fleet.Instance{}, refused(fmt.Errorf("it is for tenant %q, and the instance is of another tenant", token.Tenant))
	}
	if bound, err := spent(i, fingerprint); bound || err != nil {
		if err == nil {
			err = shard.Confirm(ctx)
		}
		return i, err
	}
	known, err := s.certified(ctx, shard, i, said)
	if err != nil {
		return fleet.Instance{}, err
	}
	now := s.cfg.Now().UTC()
	return shard.UpdateInstance(ctx, id, func(i *fleet.Instance) error {
		if bound, err := spent(*i, fingerprint); bound || err != nil {
			return err
		}
		// Changes of a record are serialized, so a key that is sent while the instance is
		// being bound to another key is not claimed.
		if !shard.ClaimKey(id, fingerprint) {
			return rpc.KeysInUse("use it with the same nonce", "public_key") // the nonce is not spent
		}
		i.Phase = fleet.Running
		i.PublicKeySHA256 = fingerprint
		i.RegisteredAt = &now
		i.Hostname, i.IPs = known.hostname, known.ips
		return nil
	})
}

// askAgain is the shortest interval between provider requests for one machine: an agent whose
// claims are refused retries again and again.
const askAgain = 5 * time.Second

// askTimeout bounds a provider request, including its wait in the queue.
const askTimeout = 5 * time.Second

// certified decides which names and addresses to certify, based on the server's and the
// provider's data. A claim that contradicts them is refused, but only after a new provider
// request, since the known data may be stale.
func (s *Service) certified(ctx context.Context, shard Shard, i fleet.Instance, said claims) (verdict, error) {
	if err := shard.RefreshServers(ctx); err != nil && said.some() {
		return verdict{}, rpc.Unavailable.Errorf("can't determine the servers' names and addresses: %w", err)
	}
	m := shard.Machine(i.ID)
	v := said.judge(i.ID, m, shard)
	if open := len(v.wrong)+len(v.unknown) > 0 || len(m.Addresses) == 0; open && s.cfg.Now().Sub(m.AskedAt) >= askAgain {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		asked, err := shard.DescribeMachine(asking, i)
		switch {
		case err == nil:
			m = asked
			v = said.judge(i.ID, m, shard)
		case len(v.wrong)+len(v.unknown) > 0:
			return verdict{}, rpc.Unavailable.Errorf("can't get this instance's machine from the provider: %w", err)
		default: // no claims, and the record is updated once the provider answers
		}
	}
	if len(v.wrong) > 0 {
		return verdict{}, rpc.InvalidRequest(v.wrong...)
	}
	if len(v.ips) < len(m.Addresses) {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "addresses of an instance also belong to others: left out of its certificate",
			slog.String("instance", string(i.ID)), slog.String("addresses", list(m.Addresses)), slog.Any("certified", v.ips))
	}
	if len(v.unknown) == 0 {
		return v, nil
	}
	if !m.Running {
		return verdict{}, rpc.Unavailable.Errorf("ips: the provider does not know yet whether %s belong to this instance", list(v.unknown))
	}
	s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "addresses claimed by an agent are unknown to the provider: left out of its certificate",
		slog.String("instance", string(i.ID)), slog.String("addresses", list(v.unknown)))
	return v, nil
}

// spent reports whether the instance is already bound to this key. It returns an error if the
// instance is bound to another key or can't register any more.
func spent(i fleet.Instance, fingerprint string) (bool, error) {
	switch {
	case i.PublicKeySHA256 != "" && i.PublicKeySHA256 != fingerprint:
		return false, refused(fmt.Errorf("%w: instance %s", errOtherKey, i.ID))
	case i.Phase.Ending():
		return false, rpc.Denied.Errorf("instance %s is %s", i.ID, i.Phase)
	case i.PublicKeySHA256 == fingerprint:
		return true, nil
	case i.Phase != fleet.Pending:
		return false, rpc.Denied.Errorf("instance %s is %s and has no key bound to it", i.ID, i.Phase)
	default:
		return false, nil
	}
}
