package agents

import (
	"context"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// RenewCertificate gives the instance that calls a new certificate.
func (s *Service) RenewCertificate(
	ctx context.Context, req *nstancev1.AgentServiceRenewCertificateRequest,
) (*nstancev1.AgentServiceRenewCertificateResponse, error) {
	shard, id, err := s.admitted(ctx)
	if err != nil {
		return nil, err
	}
	if shard.Gone(id) { // since the certificate was judged
		return nil, errRemoved()
	}
	identity, err := s.cfg.Renew(ctx, req.GetPublicKey())
	if err != nil {
		return nil, err
	}
	return &nstancev1.AgentServiceRenewCertificateResponse{Identity: identity}, nil
}
