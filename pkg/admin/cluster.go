package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/bucket"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/secrets/aws"
)

// StorageConfig says where a cluster's storage and secrets are. Reaching them
// is what makes an administrator.
type StorageConfig struct {
	Provider        string // s3 | dir
	Bucket          string // a bucket's name, or a directory
	SecretsProvider string // object-storage | aws-secrets-manager | aws-parameter-store
	SecretsPrefix   string // empty: as in a config that says none; on AWS that wants ClusterID
	KeyProvider     string // env | file | aws-secrets-manager | aws-parameter-store
	KeySource       string
	ClusterID       string           // empty: the one that the storage holds
	AWS             awsclient.Config // of the bucket too, but for the region
}

// Profile finds out how AWS is called in the name of a person. code asks for the code of the
// device that a role wants.
type Profile func(ctx context.Context, code func(device string) (string, error)) (awsclient.Config, error)

// WithProfile returns c with what the profile says of AWS, if AWS is to be called for it.
func (c StorageConfig) WithProfile(ctx context.Context, profile Profile, code func(device string) (string, error)) (StorageConfig, error) {
	atAWS := func(provider string) bool {
		return provider == secrets.ProviderSecretsManager || provider == secrets.ProviderParameterStore
	}
	if profile == nil || c.Provider != bucket.S3 && !atAWS(c.SecretsProvider) && !atAWS(c.KeyProvider) {
		return c, nil
	}
	found, err := profile(ctx, code)
	found.Region = c.AWS.Region
	c.AWS = found
	return c, err
}

// open opens the storage. No request is sent.
func (c StorageConfig) open(getenv func(string) string) (object.Store, error) {
	if c.AWS.Getenv != nil {
		getenv = c.AWS.Getenv
	}
	return bucket.Open(c.Provider, c.Bucket, getenv, c.AWS.Credentials)
}

// prefix is where the secrets are.
func (c StorageConfig) prefix() (string, error) {
	switch {
	case c.SecretsPrefix != "":
		return c.SecretsPrefix, nil
	case c.SecretsProvider == config.SecretsObjectStorage || c.ClusterID != "":
		return config.SecretsPrefix(c.SecretsProvider, c.ClusterID), nil
	default:
		return "", fmt.Errorf("secrets prefix: required with %.80q: want the config's cluster.secrets.prefix, or the cluster's id",
			c.SecretsProvider)
	}
}

// Cluster is a cluster's trust, opened straight from its storage.
type Cluster struct {
	store  object.Store
	sealed secrets.Secrets
	trust  secrets.Trust
	now    func() time.Time
	random io.Reader
}

// OpenCluster opens the storage and the secrets of a cluster that a server has
// set up; secrets.ErrNoTrust when none has.
func OpenCluster(
	ctx context.Context, c StorageConfig, getenv func(string) string, now func() time.Time, random io.Reader,
) (*Cluster, error) {
	store, err := c.open(getenv)
	if err != nil {
		return nil, err
	}
	prefix, err := c.prefix()
	if err != nil {
		return nil, err
	}
	sealed, err := aws.Open(ctx, secrets.Config{
		Provider: c.SecretsProvider, Prefix: prefix, Key: secrets.KeySource{Provider: c.KeyProvider, Source: c.KeySource},
		Store: store, Random: random,
	}, getenv, c.AWS)
	if err != nil {
		return nil, fmt.Errorf("open the cluster's secrets: %w", err)
	}
	trust, err := secrets.Load(ctx, secrets.BootstrapConfig{ClusterID: c.ClusterID, Store: store, Secrets: sealed})
	if err != nil {
		return nil, err
	}
	return &Cluster{store: store, sealed: sealed, trust: trust, now: now, random: random}, nil
}

// CheckNonce reports why no operator nonce can be made for a tenant, or with that
// life; nil when it can.
func CheckNonce(tenant string, life time.Duration) error {
	if err := fleet.CheckName(tenant); err != nil {
		return fmt.Errorf("tenant: %w", err)
	}
	if life < time.Second || life > maxNonceLife {
		return fmt.Errorf("expiry: %s is not valid: want between 1s and %s", life, maxNonceLife)
	}
	return nil
}

// maxNonceLife keeps a nonce from becoming a password.
const maxNonceLife = 7 * 24 * time.Hour

// OperatorNonce mints a registration nonce for a new operator of a tenant.
func (c *Cluster) OperatorNonce(tenant string, life time.Duration) (string, error) {
	if err := CheckNonce(tenant, life); err != nil {
		return "", err
	}
	now := c.now()
	id, err := fleet.NewID(fleet.OperatorKind, now, c.random)
	if err != nil {
		return "", err
	}
	return nonce.Mint(c.trust.NonceKey, nonce.Claims{
		Kind: nonce.KindOperator, Subject: c.trust.ClusterID, ClusterID: c.trust.ClusterID, Tenant: tenant,
		ID: string(id), IssuedAt: now, NotBefore: now, ExpiresAt: now.Add(life),
	})
}

// CheckSecret reports why a secret can't be stored under a name; nil when it can.
// What the cluster's identity rests on is the servers' to make, once.
func CheckSecret(name string, value []byte) error {
	if err := secrets.CheckName(name); err != nil {
		return err
	}
	if strings.EqualFold(name, secrets.CAKeyName) || strings.EqualFold(name, secrets.NonceKeyName) {
		return fmt.Errorf("%q is a key of the cluster itself, which only servers make", name)
	}
	if len(value) == 0 || len(value) > secrets.MaxValue {
		return fmt.Errorf("the value of %s has %d bytes: want 1 to %d", name, len(value), secrets.MaxValue)
	}
	return nil
}

// PutSecret stores a secret that files of instances can be made from, in place of
// the one of that name if there is one.
func (c *Cluster) PutSecret(ctx context.Context, name string, value []byte) error {
	if err := CheckSecret(name, value); err != nil {
		return err
	}
	return c.sealed.Replace(ctx, name, value)
}

// RegisterOperator makes a client identity for a tenant, signed directly with
// the cluster's key, records the operator as a server does when one registers by
// itself, and writes the identity to dir, which must hold none.
func (c *Cluster) RegisterOperator(ctx context.Context, tenant, dir string) (fleet.Operator, error) {
	if err := fleet.CheckName(tenant); err != nil {
		return fleet.Operator{}, fmt.Errorf("tenant: %w", err)
	}
	if err := folder(dir).CheckVacant(c.trust.Bundle.PEM()); err != nil {
		return fleet.Operator{}, err
	}
	now := c.now()
	id, err := fleet.NewID(fleet.OperatorKind, now, c.random)
	if err != nil {
		return fleet.Operator{}, err
	}
	key, err := pki.GenerateKey(c.random)
	if err != nil {
		return fleet.Operator{}, err
	}
	public := pki.PublicKey(key)
	cert, err := c.trust.CA.IssueOperator(pki.ClientRequest{Tenant: tenant, ID: string(id), PublicKey: public, Now: now,
		TTL: pki.MaxOperatorLife}, c.random)
	if err != nil {
		return fleet.Operator{}, err
	}
	keyPEM, err := pki.EncodePrivateKey(key)
	if err != nil {
		return fleet.Operator{}, err
	}
	o := fleet.Operator{ID: id, Tenant: tenant, PublicKeySHA256: pki.PublicKeySHA256(public), RegisteredAt: now.UTC()}
	if err := c.record(ctx, o); err != nil {
		return fleet.Operator{}, err
	}
	made := identity.Contents{CAs: c.trust.Bundle.PEM(), Certificate: pki.EncodeCertificate(cert), Key: keyPEM}
	if err := folder(dir).Create(made); err != nil {
		// An operator without its key is of no use.
		return fleet.Operator{}, errors.Join(err, c.store.Delete(ctx, o.Key()))
	}
	return o, nil
}

func (c *Cluster) record(ctx context.Context, o fleet.Operator) error {
	body, err := json.Marshal(o.Written(0, "nstance-admin"))
	if err != nil {
		return err
	}
	if _, err := object.Settle(ctx, c.store, o.Key(), body, object.IfAbsent()); err != nil {
		return fmt.Errorf("record operator %s: %w", o.ID, err)
	}
	return nil
}
