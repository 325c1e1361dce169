package server

import (
	"context"
	"errors"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/renewal"
)

func (s *Server) newRenewal() *renewal.Service {
	return renewal.New(renewal.Config{
		CA: s.trust.CA, Bundle: func() []byte { return s.source.Bundle().PEM() }, Operator: s.knownOperator,
		TTL: s.cfg.Times.ClientCertificate, Now: s.cfg.Now, Random: s.cfg.Random, Logger: s.cfg.Logger,
	})
}

// knownOperator holds an operator against its record, which is read each time:
// renewals are rare.
func (s *Server) knownOperator(ctx context.Context, caller pki.Caller) error {
	id, err := fleet.ParseID(caller.ID)
	if err != nil {
		return rpc.CertificateRevoked.Errorf("the certificate names no operator: %w", err)
	}
	_, err = s.store.Get(ctx, fleet.Operator{ID: id, Tenant: caller.Tenant}.Key())
	switch {
	case errors.Is(err, object.ErrNotFound):
		return rpc.CertificateRevoked.Errorf("there is no operator %s", id)
	case err != nil && ctx.Err() == nil:
		return rpc.Unavailable.Errorf("look up operator %s: %w", id, err)
	default:
		return err
	}
}
