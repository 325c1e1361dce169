package operators

import (
	"context"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// RenewCertificate issues a new certificate to the calling operator. Any shard's leader can do
// so. Neither the quota nor an unknown tenant prevents it, because the operator would lose its
// identity for good.
func (s *Service) RenewCertificate(
	ctx context.Context, req *nstancev1.OperatorServiceRenewCertificateRequest,
) (*nstancev1.OperatorServiceRenewCertificateResponse, error) {
	if _, _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	identity, err := s.cfg.Renew(ctx, req.GetPublicKey())
	if err != nil {
		return nil, err
	}
	return &nstancev1.OperatorServiceRenewCertificateResponse{Identity: identity}, nil
}
