package registration

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/pki"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// RegisterOperator verifies the nonce, binds the key by creating the operator's record under
// the nonce's jti, and issues a certificate. Any shard can do so: the record belongs to the
// cluster.
func (s *Service) RegisterOperator(
	ctx context.Context, req *nstancev1.RegisterOperatorRequest,
) (*nstancev1.RegisterOperatorResponse, error) {
	claimed(ctx, req.GetNonce(), req.GetPublicKey(), "", nil)
	shard, err := s.cfg.Shard()
	if err != nil {
		return nil, err
	}
	claims, key, err := s.verify(req.GetNonce(), req.GetPublicKey(), nonce.Want{Kind: nonce.KindOperator, ClusterID: s.cfg.ClusterID})
	if err != nil {
		return nil, err
	}
	proven(ctx, claims)
	id, err := fleet.ParseID(claims.ID)
	if err != nil || id.Kind() != fleet.OperatorKind {
		return nil, refused(fmt.Errorf("jti %.40q is not an operator id", claims.ID))
	}
	want := fleet.Operator{ID: id, Tenant: claims.Tenant, PublicKeySHA256: pki.PublicKeySHA256(key), RegisteredAt: s.cfg.Now().UTC()}
	got, err := shard.BindOperator(ctx, want)
	if err != nil {
		return nil, err
	}
	if got.RemovedAt != nil {
		return nil, refused(fmt.Errorf("operator %s was removed", id))
	}
	if got.PublicKeySHA256 != want.PublicKeySHA256 || got.Tenant != want.Tenant {
		return nil, refused(fmt.Errorf("%w: operator %s", errOtherKey, id))
	}
	identity, err := s.identity(s.cfg.CA.IssueOperator, claims.Tenant, id, key)
	if err != nil {
		return nil, err
	}
	s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "operator registered",
		slog.String("operator", string(id)), slog.String("tenant", claims.Tenant))
	return &nstancev1.RegisterOperatorResponse{Identity: identity}, nil
}
