package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/secrets"
)

// trust is the cluster's CA and keys, and this server's own certificate.
type trust struct {
	secrets.Trust
	cfg       Config
	store     object.Store
	mu        sync.Mutex
	last      secrets.Trust // as last read from the store
	addresses *addresses    // in the certificate
	sealed    secrets.Secrets
	source    *pki.Source
	tls       pki.Endpoint
}

// open reads the CA and the nonce key, creates them for a new cluster, and issues this server's
// certificate.
func (t *trust) open(ctx context.Context, shard *config.Shard, store object.Store) (err error) {
	cluster := shard.Cluster
	if t.sealed, err = openSecrets(ctx, shard, store, t.cfg); err != nil {
		return fmt.Errorf("cluster.secrets: %w", err)
	}
	t.store = store
	t.Trust, err = secrets.Bootstrap(ctx, t.bootstrap(cluster.ID))
	if err != nil {
		return fmt.Errorf("open the cluster's CA and keys: %w", err)
	}
	t.last = t.Trust
	t.source = pki.NewSource(t.Bundle, nil)
	t.tls = pki.Endpoint{Cluster: cluster.ID, Source: t.source, Now: t.cfg.Now}
	return t.issueCertificate()
}

func (t *trust) bootstrap(cluster string) secrets.BootstrapConfig {
	return secrets.BootstrapConfig{ClusterID: cluster, Store: t.store, Secrets: t.sealed, Now: t.cfg.Now, Random: t.cfg.Random}
}

// restore stores again what is missing of the CA and the keys.
func (t *trust) restore(ctx context.Context) (stored []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last, stored, err = secrets.Restore(ctx, t.bootstrap(t.ClusterID), t.last)
	return stored, err
}

// bundle is the CA bundle.
func (t *trust) bundle() []byte { return t.source.Bundle().PEM() }

// issueCertificate gives this server a new key and certificate. Open connections keep the old
// one.
func (t *trust) issueCertificate() error {
	key, err := pki.GenerateKey(t.cfg.Random)
	if err != nil {
		return err
	}
	cert, err := t.CA.IssueServer(pki.ServerRequest{
		Shard: t.cfg.Shard, DNS: t.addresses.dns, IPs: t.addresses.ips, PublicKey: pki.PublicKey(key),
		Now: t.cfg.Now(), TTL: t.cfg.Times.Certificate,
	}, t.cfg.Random)
	if err != nil {
		return fmt.Errorf("issue the server's certificate: %w", err)
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		return err
	}
	t.source.SetKeypair(pair)
	return nil
}

// runRenewal renews the server's certificate at two thirds of its life, until ctx ends.
func (t *trust) runRenewal(ctx context.Context) {
	for {
		if retry.Wait(ctx, t.nextLook(t.cfg.Now())) != nil {
			return
		}
		if t.cfg.Now().Before(pki.RenewAt(t.source.Keypair().Certificate())) {
			continue
		}
		if err := t.issueCertificate(); err != nil {
			t.cfg.Logger.Error("can't renew the server's certificate", slog.Any("error", err))
			continue
		}
		t.cfg.Logger.Info("server certificate renewed", slog.Time("not_after", t.source.Keypair().Certificate().NotAfter))
	}
}

// nextLook returns the pause before the next check: until the renewal is due, but at most an
// hour, since the host may be suspended or its clock be set; and at least a minute, or a
// twentieth of a shorter life, since the renewal is always due near the end of the CA, or when
// no certificate can be issued.
func (t *trust) nextLook(now time.Time) time.Duration {
	due := pki.RenewAt(t.source.Keypair().Certificate()).Sub(now)
	return max(min(due, time.Hour), min(time.Minute, t.cfg.Times.Certificate/20))
}
