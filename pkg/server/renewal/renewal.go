// Package renewal gives agents and operators a new client certificate for the
// one that they show.
//
// Who asks, and for whom, is in the certificate alone: the request holds nothing
// but the new public key. The guard before every call has judged the certificate
// already, an agent's against its instance's record, an operator's against its
// own. That one is read once more here, so that a removal which another shard's
// leader carried out holds for renewals at once.
//
// The key that a record is bound to stays the one that its nonce was spent with,
// and only that key may spend the nonce again; were a renewal to put its key in the
// place of that one, a lost reply to the registration could not be asked for again.
// An instance's record lists the keys of its renewals beside that one, so that no
// other instance can come to have them.
package renewal

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Config is what the service needs.
type Config struct {
	CA     *pki.CA
	Bundle func() []byte // the CA bundle, PEM
	// Operator returns nil for an operator that has a record, an error of kind
	// CertificateRevoked for one that has none or was removed, and one of kind
	// Unavailable when that can't be told.
	Operator func(ctx context.Context, caller pki.Caller) error
	// AgentKey makes a public key, by fingerprint, that of an agent's instance, and that
	// durable. The error is of kind KeyInUse if another living instance has the key.
	AgentKey func(ctx context.Context, caller pki.Caller, fingerprint string) error
	TTL      time.Duration // life of a client certificate
	Now      func() time.Time
	Random   io.Reader
	Logger   *slog.Logger
}

// Service renews certificates. Safe for concurrent use.
type Service struct {
	cfg   Config
	limit *limiter
}

// New returns a service.
func New(cfg Config) *Service { return &Service{cfg: cfg, limit: newLimiter(cfg.TTL)} }

// Renew returns a certificate for the caller of ctx and publicKey, an Ed25519
// key (PEM, PKIX) that is not the one of the certificate shown. Its errors are
// kinds of package rpc.
func (s *Service) Renew(ctx context.Context, publicKey string) (*nstancev1.Identity, error) {
	caller, ok := rpc.CallerFrom(ctx)
	if !ok {
		return nil, rpc.Unauthenticated.Errorf("no client certificate")
	}
	key, err := newKey(caller, publicKey)
	if err != nil {
		return nil, err
	}
	now := s.cfg.Now()
	if !s.limit.allows(string(caller.Role)+"/"+caller.Tenant+"/"+caller.ID, now) {
		return nil, rpc.Exhausted.Errorf("renew the certificate of %s %s: asked too often: %d times in %s are allowed",
			caller.Role, caller.ID, maxTimes, s.limit.window)
	}
	if err := s.accept(ctx, caller, key); err != nil {
		return nil, err
	}
	cert, err := s.issue(caller, key, now)
	if err != nil {
		return nil, err
	}
	s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "certificate renewed", slog.String("role", string(caller.Role)), slog.String("id", caller.ID),
		slog.String("tenant", caller.Tenant), slog.String("serial", pki.SerialHex(cert)), slog.Time("not_after", cert.NotAfter))
	return &nstancev1.Identity{
		Certificate: string(pki.EncodeCertificate(cert)), CaChain: string(s.cfg.Bundle()), NotAfter: timestamppb.New(cert.NotAfter),
	}, nil
}

// accept holds the caller against its record: an operator must have one, and an agent's
// gets the key.
func (s *Service) accept(ctx context.Context, caller pki.Caller, key ed25519.PublicKey) error {
	if caller.Role == pki.RoleOperator {
		return s.cfg.Operator(ctx, caller)
	}
	err := s.cfg.AgentKey(ctx, caller, pki.PublicKeySHA256(key))
	if errors.Is(err, rpc.KeyInUse) {
		return &rpc.ViolationsError{Message: "invalid request", Kind: rpc.KeyInUse, Violations: []rpc.Violation{{
			Field: "public_key", Description: "it is the key of another instance: make a new one, and renew with that",
		}}}
	}
	return err
}

// newKey reads the key and refuses the one that the caller has: a key that was
// read by somebody would be as good for ever as the machine.
func newKey(caller pki.Caller, text string) (ed25519.PublicKey, error) {
	key, err := pki.ParsePublicKey([]byte(text))
	if err != nil {
		return nil, invalidKey(err.Error())
	}
	if pki.PublicKeySHA256(key) == caller.PublicKeySHA256 {
		return nil, invalidKey("it is the key of the present certificate: want a new one")
	}
	return key, nil
}

func invalidKey(description string) error {
	return &rpc.ViolationsError{Message: "invalid request", Violations: []rpc.Violation{{Field: "public_key", Description: description}}}
}

// issue signs the certificate. One that was made to last longer is not cut short
// by being renewed, but to what an operator's may last.
func (s *Service) issue(caller pki.Caller, key ed25519.PublicKey, now time.Time) (*x509.Certificate, error) {
	r := pki.ClientRequest{Tenant: caller.Tenant, ID: caller.ID, PublicKey: key, Now: now, TTL: max(s.cfg.TTL, caller.NotAfter.Sub(now))}
	switch caller.Role {
	case pki.RoleAgent:
		return s.cfg.CA.IssueAgent(r, s.cfg.Random)
	case pki.RoleOperator:
		return s.cfg.CA.IssueOperator(r, s.cfg.Random)
	default:
		return nil, rpc.Denied.Errorf("renew a certificate: the caller's is of role %s: want agent or operator", caller.Role)
	}
}
