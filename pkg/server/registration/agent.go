package registration

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// RegisterAgent verifies the nonce, binds the key by moving the instance to
// running, and signs a certificate.
func (s *Service) RegisterAgent(ctx context.Context, req *nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
	shard, err := s.cfg.Shard()
	if err != nil {
		return nil, err
	}
	claims, key, err := s.verify(req.GetNonce(), req.GetPublicKey(),
		nonce.Want{Kind: nonce.KindAgent, ClusterID: s.cfg.ClusterID, Shard: s.cfg.ShardID})
	if err != nil {
		return nil, err
	}
	id, err := fleet.ParseID(claims.Subject)
	if err != nil {
		return nil, refused(err)
	}
	ips, err := s.facts(shard, id, req)
	if err != nil {
		return nil, err
	}
	i, err := s.bind(ctx, shard, id, claims, pki.PublicKeySHA256(key), req.GetHostname(), ips)
	if err != nil {
		return nil, err
	}
	identity, err := s.identity(s.cfg.CA.IssueAgent, i.Tenant, id, key)
	if err != nil {
		return nil, err
	}
	shard.Registered(id)
	s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "agent registered", slog.String("instance", string(id)), slog.String("tenant", i.Tenant))
	return &nstancev1.RegisterAgentResponse{Identity: identity}, nil
}

// bind spends the nonce: the first key to come with it becomes the instance's.
func (s *Service) bind(
	ctx context.Context, shard Shard, id fleet.InstanceID, claims nonce.Claims, fingerprint, hostname string, ips []string,
) (fleet.Instance, error) {
	i, err := shard.Instance(ctx, claims.Tenant, id)
	if err != nil {
		return fleet.Instance{}, err
	}
	if i.Tenant != claims.Tenant {
		return fleet.Instance{}, refused(fmt.Errorf("it is for tenant %q, which is not the instance's", claims.Tenant))
	}
	if bound, err := spent(i, fingerprint); bound || err != nil {
		if err == nil {
			err = shard.Confirm(ctx)
		}
		return i, err
	}
	now := s.cfg.Now().UTC()
	return shard.UpdateInstance(ctx, id, func(i *fleet.Instance) error {
		if bound, err := spent(*i, fingerprint); bound || err != nil {
			return err
		}
		// Here one attempt of the instance comes after the other; a key that it came
		// with while it was bound to another is not claimed.
		if !shard.ClaimKey(id, fingerprint) {
			return keyInUse()
		}
		i.Phase = fleet.Running
		i.PublicKeySHA256 = fingerprint
		i.RegisteredAt = &now
		i.Hostname, i.IPs = hostname, ips
		return nil
	})
}

// spent reports whether the instance is bound to this very key already. An
// instance bound to another key, or past its time, can't register any more.
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
