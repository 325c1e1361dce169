package operators

import (
	"context"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// RenewCertificate gives the operator that calls a new certificate. Any shard's
// leader can: an operator is the cluster's.
func (s *Service) RenewCertificate(
	ctx context.Context, req *nstancev1.OperatorServiceRenewCertificateRequest,
) (*nstancev1.OperatorServiceRenewCertificateResponse, error) {
	if _, _, err := s.open(ctx); err != nil {
		return nil, err
	}
	identity, err := s.cfg.Renew(ctx, req.GetPublicKey())
	if err != nil {
		return nil, err
	}
	return &nstancev1.OperatorServiceRenewCertificateResponse{Identity: identity}, nil
}
