// Package registration serves RegistrationService: it trades a registration
// nonce and a public key for a client certificate.
//
// The nonce proves that its bearer is the machine, or the operator, that the
// cluster meant to let in; spending it binds the key. One durable conditional
// write does both: an instance's record moves to running with the key's
// fingerprint in it, an operator's record is created under its nonce's jti.
// The same nonce with the same key succeeds again within its life, so that a
// lost reply, or a leader lost right after the write, does not brick a machine. A
// key that another living instance has is refused before the nonce is spent.
package registration

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Shard is what the leader's term offers to registration.
type Shard interface {
	// Instance returns a record; when the cache has none it asks the store for one
	// of this tenant. An error of kind rpc.NotFound means that there is none.
	Instance(ctx context.Context, tenant string, id fleet.InstanceID) (fleet.Instance, error)
	// UpdateInstance changes a record. It is durable, and the leader's right to
	// say so holds, when the error is nil. The change's own errors come back as
	// they are.
	UpdateInstance(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error)
	// ClaimKey makes a public key an instance's from now on, and reports false when
	// another living instance has it. The instance's own may be claimed again. It does
	// not wait, and may be called within a change of UpdateInstance.
	ClaimKey(id fleet.InstanceID, fingerprint string) bool
	// Confirm returns nil while this server may answer for the shard.
	Confirm(ctx context.Context) error
	// BindOperator stores an operator's record unless there is one, and returns
	// the one that counts.
	BindOperator(ctx context.Context, o fleet.Operator) (fleet.Operator, error)
	// Addresses returns what the provider knows of an instance's addresses.
	Addresses(id fleet.InstanceID) []netip.Addr
	// Registered tells that an instance runs now.
	Registered(id fleet.InstanceID)
}

// Config is what the service needs.
type Config struct {
	// Shard returns the current term's shard, or an error that tells the caller
	// where the leader is.
	Shard     func() (Shard, error)
	ClusterID string
	ShardID   string
	NonceKey  ed25519.PublicKey
	CA        *pki.CA
	Bundle    func() []byte // the CA bundle, PEM
	// ReservedAddr and ReservedName report whether an address or a host name is a
	// server's or the leader's, which no instance may claim.
	ReservedAddr func(netip.Addr) bool
	ReservedName func(string) bool
	TTL          time.Duration // life of a client certificate
	Now          func() time.Time
	Random       io.Reader
	Logger       *slog.Logger
}

// Service implements RegistrationService. Safe for concurrent use.
type Service struct {
	nstancev1.UnimplementedRegistrationServiceServer
	cfg Config
}

// New returns a service that serves cfg.Shard.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

var _ nstancev1.RegistrationServiceServer = (*Service)(nil)

// refused is the answer to a nonce that is not accepted. It is final: the same
// nonce will never be.
func refused(err error) error { return rpc.Denied.Errorf("registration nonce: %w", err) }

func invalid(field, description string) error {
	return &rpc.ViolationsError{Message: "invalid request", Violations: []rpc.Violation{{Field: field, Description: description}}}
}

// keyInUse refuses a key that another instance has, of which it says nothing. The nonce
// is not spent by it.
func keyInUse() error {
	return &rpc.ViolationsError{Message: "invalid request", Kind: rpc.KeyInUse, Violations: []rpc.Violation{{
		Field: "public_key", Description: "it is the key of another instance: make a new one, and use the same nonce with that",
	}}}
}

// verify checks a nonce and the key that comes with it.
func (s *Service) verify(token, publicKey string, want nonce.Want) (nonce.Claims, ed25519.PublicKey, error) {
	claims, err := nonce.Verify(s.cfg.NonceKey, token, want, s.cfg.Now())
	if errors.Is(err, nonce.ErrNotYetValid) {
		// This server's clock is behind. It will catch up, or another one answers.
		return nonce.Claims{}, nil, rpc.Unavailable.Errorf("registration nonce: %w", err)
	}
	if err != nil {
		return nonce.Claims{}, nil, refused(err)
	}
	key, err := pki.ParsePublicKey([]byte(publicKey))
	if err != nil {
		return nonce.Claims{}, nil, invalid("public_key", err.Error())
	}
	return claims, key, nil
}

// errOtherKey means that the nonce is spent on another key.
var errOtherKey = errors.New("it was used with another key already")

func (s *Service) identity(
	issue func(pki.ClientRequest, io.Reader) (*x509.Certificate, error), tenant string, id fleet.InstanceID, key ed25519.PublicKey,
) (*nstancev1.Identity, error) {
	c, err := issue(pki.ClientRequest{Tenant: tenant, ID: string(id), PublicKey: key, Now: s.cfg.Now(), TTL: s.cfg.TTL}, s.cfg.Random)
	if err != nil {
		return nil, err
	}
	return &nstancev1.Identity{
		Certificate: string(pki.EncodeCertificate(c)), CaChain: string(s.cfg.Bundle()), NotAfter: timestamppb.New(c.NotAfter),
	}, nil
}
