// Package renewal issues a new client certificate to an agent or operator that presents a
// valid one. The caller is identified by the certificate alone: the request holds only the new
// public key. The guard has already checked the certificate against the record of the instance
// or operator. An operator's record is read again here, so that a removal by another shard's
// leader applies to renewals at once.
//
// A record stays bound to the key that its nonce was spent with, and only that key may spend
// the nonce again; if a renewal replaced it, a registration whose response was lost could not
// be repeated. An instance's record also lists the keys of its renewals, so that no other
// instance can use them.
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

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Config is what the service needs.
type Config struct {
	CA     *pki.CA
	Bundle func() []byte // the CA bundle, PEM
	// Operator returns nil if the operator has a record, an error of kind CertificateRevoked
	// if it has none or was removed, and one of kind Unavailable if that can't be determined.
	Operator func(ctx context.Context, caller pki.Caller) error
	// AgentKey durably assigns a public key, by fingerprint, to an agent's instance. The error
	// is of kind KeyInUse if another living instance has the key.
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

// Renew issues a certificate to the caller of ctx for publicKey, an Ed25519 key (PEM, PKIX)
// other than the current certificate's. Its errors are kinds of package rpc.
func (s *Service) Renew(ctx context.Context, publicKey string) (*nstancev1.Identity, error) {
	caller, ok := rpc.CallerFrom(ctx)
	if !ok {
		return nil, rpc.Unauthenticated.Errorf("no client certificate")
	}
	key, err := newKey(caller, publicKey)
	if err != nil {
		return nil, err
	}
	audit.On(ctx, string(caller.Role)+" "+caller.Tenant+"/"+caller.ID)
	audit.Claimed(ctx, "public_key_sha256", pki.PublicKeySHA256(key))
	becomes := audit.Detail{Name: "public_key_sha256", From: caller.PublicKeySHA256, To: pki.PublicKeySHA256(key)}
	audit.Wanted(ctx, becomes)
	now := s.cfg.Now()
	if !s.limit.allows(string(caller.Role)+"/"+caller.Tenant+"/"+caller.ID, now) {
		return nil, rpc.Exhausted.Errorf("renew the certificate of %s %s: too many renewals: at most %d in %s are allowed",
			caller.Role, caller.ID, maxTimes, s.limit.window)
	}
	if err := s.accept(ctx, caller, key); err != nil {
		return nil, err
	}
	cert, err := s.issue(caller, key, now)
	if err != nil {
		return nil, err
	}
	audit.Changed(ctx, audit.Detail{Name: "serial", From: caller.Serial, To: pki.SerialHex(cert)}, becomes)
	s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "certificate renewed", slog.String("role", string(caller.Role)), slog.String("id", caller.ID),
		slog.String("tenant", caller.Tenant), slog.String("serial", pki.SerialHex(cert)), slog.Time("not_after", cert.NotAfter))
	bundle := s.cfg.Bundle()
	return &nstancev1.Identity{
		Certificate: string(pki.EncodeCertificate(cert)), NotAfter: timestamppb.New(cert.NotAfter),
		CaChain: string(bundle), CaChainSignature: s.cfg.CA.SignBundle(bundle),
	}, nil
}

// accept checks the caller's record: an operator must have one, and the key is added to an
// agent's.
func (s *Service) accept(ctx context.Context, caller pki.Caller, key ed25519.PublicKey) error {
	if caller.Role == pki.RoleOperator {
		return s.cfg.Operator(ctx, caller)
	}
	err := s.cfg.AgentKey(ctx, caller, pki.PublicKeySHA256(key))
	if errors.Is(err, rpc.KeyInUse) {
		return rpc.KeysInUse("renew with it", "public_key")
	}
	return err
}

// newKey parses the key and refuses the caller's current one: a leaked key would be valid for
// as long as the machine lives.
func newKey(caller pki.Caller, text string) (ed25519.PublicKey, error) {
	key, err := pki.ParsePublicKey([]byte(text))
	if err != nil {
		return nil, rpc.InvalidField("public_key", err.Error())
	}
	if pki.PublicKeySHA256(key) == caller.PublicKeySHA256 {
		return nil, rpc.InvalidField("public_key", "this is the key of the current certificate: generate a new one")
	}
	return key, nil
}

// issue signs the certificate. It expires no earlier than the current one, within the CA's
// limit for operators.
func (s *Service) issue(caller pki.Caller, key ed25519.PublicKey, now time.Time) (*x509.Certificate, error) {
	r := pki.ClientRequest{Tenant: caller.Tenant, ID: caller.ID, PublicKey: key, Now: now, TTL: max(s.cfg.TTL, caller.NotAfter.Sub(now))}
	switch caller.Role {
	case pki.RoleAgent:
		return s.cfg.CA.IssueAgent(r, s.cfg.Random)
	case pki.RoleOperator:
		return s.cfg.CA.IssueOperator(r, s.cfg.Random)
	default:
		return nil, rpc.Denied.Errorf("renew a certificate: the caller has role %s: want agent or operator", caller.Role)
	}
}
