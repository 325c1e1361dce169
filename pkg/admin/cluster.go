package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/bucket"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/record"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/secrets/aws"
)

// StorageConfig is the location of a cluster's storage and secrets. Access to them is what
// makes an administrator.
type StorageConfig struct {
	Provider        string // s3 | dir
	Bucket          string // a bucket's name, or a directory
	Insecure        bool   // allows plain HTTP to remote storage and AWS secrets
	SecretsProvider string // object-storage | aws-secrets-manager | aws-parameter-store
	SecretsPrefix   string // empty: the config's default, which on AWS needs ClusterID
	KeyProvider     string // env | file | aws-secrets-manager | aws-parameter-store
	KeySource       string
	OldKeys         []secrets.KeySource // for decryption only
	ClusterID       string              // empty: any
	AWS             awsclient.Config    // also for the bucket, except the region
}

// Profile resolves how an administrator calls AWS. code prompts for an MFA device's code, which
// some roles require.
type Profile func(ctx context.Context, code func(device string) (string, error)) (awsclient.Config, error)

// WithProfile returns c with the profile's AWS settings, if AWS is called for it.
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

// open opens the storage. It sends no request.
func (c StorageConfig) open(getenv func(string) string) (object.Store, error) {
	if c.AWS.Getenv != nil {
		getenv = c.AWS.Getenv
	}
	if c.Insecure {
		getenv = awsclient.WithInsecure(getenv)
	}
	return bucket.Open(c.Provider, c.Bucket, getenv, c.AWS.Credentials)
}

// prefix returns the prefix of secret names.
func (c StorageConfig) prefix() (string, error) {
	switch {
	case c.SecretsPrefix != "":
		return c.SecretsPrefix, nil
	case c.SecretsProvider == config.SecretsObjectStorage || c.ClusterID != "":
		return config.SecretsPrefix(c.SecretsProvider, c.ClusterID), nil
	default:
		return "", fmt.Errorf("the prefix of secrets is required with the provider %.80q: pass the config's cluster.secrets.prefix, "+
			"or the cluster's ID", c.SecretsProvider)
	}
}

// Cluster is the trust of a cluster, read directly from its storage.
type Cluster struct {
	store  object.Store
	sealed secrets.Secrets
	trust  secrets.Trust
	now    func() time.Time
	random io.Reader
}

// OpenCluster opens the storage and the secrets of a cluster; secrets.ErrNoTrust if no server
// has set it up yet.
func OpenCluster(
	ctx context.Context, c StorageConfig, getenv func(string) string, now func() time.Time, random io.Reader,
) (*Cluster, error) {
	store, err := c.openExisting(getenv)
	if err != nil {
		return nil, err
	}
	prefix, err := c.prefix()
	if err != nil {
		return nil, err
	}
	if c.Insecure {
		c.AWS.Getenv = awsclient.WithInsecure(c.AWS.Getenv)
	}
	sealed, err := aws.Open(ctx, secrets.Config{
		Provider: c.SecretsProvider, Prefix: prefix, Key: secrets.KeySource{Provider: c.KeyProvider, Source: c.KeySource},
		OldKeys: c.OldKeys, Store: store, Random: random,
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

// CheckNonce reports why no operator nonce can be created for a tenant with a lifetime; nil if
// it can.
func CheckNonce(tenant string, life time.Duration) error {
	if err := fleet.CheckName(tenant); err != nil {
		return fmt.Errorf("tenant: %w", err)
	}
	if life < time.Second || life > maxNonceLife {
		return fmt.Errorf("expiry: %s is not valid: want between 1s and %s", life, maxNonceLife)
	}
	return nil
}

// maxNonceLife bounds the lifetime of a nonce, which is a short-lived credential.
const maxNonceLife = 7 * 24 * time.Hour

// OperatorNonce creates a registration nonce for a new operator of a tenant.
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

// CheckSecret reports why a secret can't be stored under a name; nil if it can. The secrets of
// the cluster's own trust are created by servers only.
func CheckSecret(name string, value []byte) error {
	if err := secrets.CheckName(name); err != nil {
		return err
	}
	if secrets.Reserved(name) {
		return fmt.Errorf("%q is part of the cluster's own trust, which only servers create", name)
	}
	if len(value) == 0 || len(value) > secrets.MaxValue {
		return fmt.Errorf("the value of %s has %d bytes: want 1 to %d", name, len(value), secrets.MaxValue)
	}
	return nil
}

// PutSecret stores a secret for instance files, replacing an existing one of that name.
func (c *Cluster) PutSecret(ctx context.Context, name string, value []byte) error {
	if err := CheckSecret(name, value); err != nil {
		return err
	}
	return c.sealed.Replace(ctx, name, value)
}

// RegisterOperator creates a client identity for a tenant, signed directly with the cluster's
// key, records the operator as a server does at registration, and writes the identity to dir,
// which must not hold one.
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
		// An operator record without the identity's key is useless.
		return fleet.Operator{}, errors.Join(err, c.store.Delete(ctx, o.Key()))
	}
	return o, nil
}

func (c *Cluster) record(ctx context.Context, o fleet.Operator) error {
	body, err := json.Marshal(o.Written(0, "nstance-admin"))
	if err == nil {
		body, err = record.NewSeal(c.trust.CA.DeriveKey(fleet.OperatorSeal)).Close(o.Key(), body)
	}
	if err != nil {
		return err
	}
	if _, err := object.PutConfirmed(ctx, c.store, o.Key(), body, object.IfAbsent()); err != nil {
		return fmt.Errorf("record operator %s: %w", o.ID, err)
	}
	return nil
}
