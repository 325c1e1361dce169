package agents

import (
	"context"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// RenewCertificate issues a new certificate to the calling instance.
func (s *Service) RenewCertificate(
	ctx context.Context, req *nstancev1.AgentServiceRenewCertificateRequest,
) (*nstancev1.AgentServiceRenewCertificateResponse, error) {
	shard, id, err := s.admitted(ctx)
	if err != nil {
		return nil, err
	}
	if shard.Gone(id) { // may have changed since the certificate was checked
		return nil, errRemoved()
	}
	identity, err := s.cfg.Renew(ctx, req.GetPublicKey())
	if err != nil {
		return nil, err
	}
	s.sessions.renewed(id, identity.GetNotAfter().AsTime())
	return &nstancev1.AgentServiceRenewCertificateResponse{Identity: identity}, nil
}
