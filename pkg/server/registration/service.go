// Package registration serves RegistrationService: it exchanges a registration nonce and a
// public key for a client certificate.
//
// The nonce proves that its bearer is the machine or operator that the cluster meant to admit;
// spending it binds the key. One durable conditional write does both: an instance's record
// moves to running with the key's fingerprint in it, and an operator's record is created under
// its nonce's jti. The same nonce with the same key succeeds again while it is valid, so that
// a lost response, or a leader lost right after the write, does not brick a machine. A key of
// another living instance is refused before the nonce is spent.
//
// A machine's claims about its own name and addresses prove nothing, since root on it controls
// them. An instance is identified, and certified, by its ID and the provider's data
// (facts.go).
package registration

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/tracing"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Shard is what the leader's term offers to registration.
type Shard interface {
	// Instance returns a record, reading the store on a cache miss. The error is of kind
	// rpc.NotFound if the tenant has no such instance.
	Instance(ctx context.Context, tenant string, id fleet.InstanceID) (fleet.Instance, error)
	// UpdateInstance changes a record. A nil error means that the change is durable and that
	// this server was leader. The change's own errors are returned unchanged.
	UpdateInstance(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error)
	// ClaimKey assigns a public key to an instance, and returns false if another living
	// instance has it. An instance may claim its own key again. It does not block, and may be
	// called within a change of UpdateInstance.
	ClaimKey(id fleet.InstanceID, fingerprint string) bool
	// Confirm returns nil while this server is the leader.
	Confirm(ctx context.Context) error
	// BindOperator creates an operator's record unless it exists, and returns the stored one.
	BindOperator(ctx context.Context, o fleet.Operator) (fleet.Operator, error)
	// Machine returns the provider's last data on an instance's machine, from memory.
	Machine(id fleet.InstanceID) Machine
	// DescribeMachine asks the provider. The result is empty if there is no such machine.
	DescribeMachine(ctx context.Context, i fleet.Instance) (Machine, error)
	Owners
	// RefreshServers updates the servers that Owners knows. It returns an error if they were
	// never read.
	RefreshServers(ctx context.Context) error
	// RegistrationRefused reports why an instance can't register although its agent has a nonce
	// for it, until Registered is called. It does nothing if the tenant has no such instance.
	RegistrationRefused(tenant string, id fleet.InstanceID, why error)
	// Registered reports that an instance runs.
	Registered(id fleet.InstanceID)
}

// Config is what the service needs.
type Config struct {
	// Shard returns the current term's shard, or an error that names the leader.
	Shard     func() (Shard, error)
	ClusterID string
	ShardID   string
	NonceKey  ed25519.PublicKey
	CA        *pki.CA
	Bundle    func() []byte // the CA bundle, PEM
	TTL       time.Duration // life of a client certificate
	Now       func() time.Time
	Random    io.Reader
	Logger    *slog.Logger
	Tracer    *tracing.Tracer // nil: no traces
}

// Service implements RegistrationService. Safe for concurrent use.
type Service struct {
	nstancev1.UnimplementedRegistrationServiceServer
	cfg Config
}

// New returns a service that serves cfg.Shard.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

var _ nstancev1.RegistrationServiceServer = (*Service)(nil)

// refused is the answer to a nonce that is not accepted. It is final.
func refused(err error) error { return rpc.Denied.Errorf("registration nonce: %w", err) }

// verify checks a nonce and its public key. It returns the claims of a nonce that this cluster
// signed for this kind of client and shard, even if there is an error.
func (s *Service) verify(token, publicKey string, want nonce.Want) (nonce.Claims, ed25519.PublicKey, error) {
	claims, err := nonce.Verify(s.cfg.NonceKey, token, want, s.cfg.Now())
	if errors.Is(err, nonce.ErrNotYetValid) {
		// This server's clock is behind. The agent may retry here or with another server.
		return claims, nil, rpc.Unavailable.Errorf("registration nonce: %w", err)
	}
	if err != nil {
		return claims, nil, refused(err)
	}
	key, err := pki.ParsePublicKey([]byte(publicKey))
	if err != nil {
		return claims, nil, rpc.InvalidField("public_key", err.Error())
	}
	return claims, key, nil
}

// errOtherKey means that the nonce was spent with another key.
var errOtherKey = errors.New("already used with another key")

func (s *Service) identity(
	issue func(pki.ClientRequest, io.Reader) (*x509.Certificate, error), tenant string, id fleet.InstanceID, key ed25519.PublicKey,
) (*nstancev1.Identity, error) {
	c, err := issue(pki.ClientRequest{Tenant: tenant, ID: string(id), PublicKey: key, Now: s.cfg.Now(), TTL: s.cfg.TTL}, s.cfg.Random)
	if err != nil {
		return nil, err
	}
	bundle := s.cfg.Bundle()
	return &nstancev1.Identity{
		Certificate: string(pki.EncodeCertificate(c)), NotAfter: timestamppb.New(c.NotAfter),
		CaChain: string(bundle), CaChainSignature: s.cfg.CA.SignBundle(bundle),
	}, nil
}
