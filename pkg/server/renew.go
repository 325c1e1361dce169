package server

import (
	"context"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/leader"
	"github.com/nstance/nstance/pkg/server/renewal"
)

func (s *Server) newRenewal() *renewal.Service {
	return renewal.New(renewal.Config{
		CA: s.trust.CA, Bundle: s.bundle, Operator: s.knownOperator,
		TTL: s.cfg.Times.ClientCertificate, Now: s.cfg.Now, Random: s.cfg.Random, Logger: s.cfg.Logger,
	})
}

// knownOperator holds an operator against its record, which is read each time:
// renewals are rare.
func (s *Server) knownOperator(ctx context.Context, caller pki.Caller) error {
	r, err := ofTerm(s, (*leader.Term).Roster)()
	if err != nil {
		return err
	}
	return r.Read(ctx, caller)
}

// bundle is the CA bundle.
func (s *Server) bundle() []byte { return s.source.Bundle().PEM() }
