package server

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/secrets"
)

// openTrust opens, or on an empty cluster makes, the CA and the nonce key, and
// issues this server's certificate.
func (s *Server) openTrust(ctx context.Context) error {
	sealed, err := openSecrets(s.boot.Cluster.Secrets, s.store, s.cfg)
	if err != nil {
		return fmt.Errorf("cluster.secrets: %w", err)
	}
	s.secrets = sealed
	s.trust, err = secrets.Bootstrap(ctx, secrets.BootstrapConfig{
		ClusterID: s.boot.Cluster.ID, Store: s.store, Secrets: sealed, Now: s.cfg.Now, Random: s.cfg.Random,
	})
	if err != nil {
		return fmt.Errorf("open the cluster's CA and keys: %w", err)
	}
	s.source = pki.NewSource(s.trust.Bundle, nil)
	s.tls = pki.Endpoint{Cluster: s.boot.Cluster.ID, Source: s.source, Now: s.cfg.Now}
	return s.issueCertificate()
}

// issueCertificate gives this server a new certificate, for a new key.
// Connections that are open keep theirs.
func (s *Server) issueCertificate() error {
	key, err := pki.GenerateKey(s.cfg.Random)
	if err != nil {
		return err
	}
	cert, err := s.trust.CA.IssueServer(pki.ServerRequest{
		Shard: s.cfg.Shard, DNS: s.dnsNames, IPs: s.ownAddresses, PublicKey: pki.PublicKey(key),
		Now: s.cfg.Now(), TTL: s.cfg.Times.Certificate,
	}, s.cfg.Random)
	if err != nil {
		return fmt.Errorf("issue the server's certificate: %w", err)
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		return err
	}
	s.source.SetKeypair(pair)
	return nil
}

// keepCertificate renews the server's certificate at two thirds of its life,
// until ctx ends.
func (s *Server) keepCertificate(ctx context.Context) {
	for {
		if retry.Wait(ctx, s.nextLook(s.cfg.Now())) != nil {
			return
		}
		if s.cfg.Now().Before(pki.RenewAt(s.source.Keypair().Certificate())) {
			continue
		}
		if err := s.issueCertificate(); err != nil {
			s.cfg.Logger.Error("can't renew the server's certificate", slog.Any("error", err))
			continue
		}
		s.cfg.Logger.Info("server certificate renewed", slog.Time("not_after", s.source.Keypair().Certificate().NotAfter))
	}
}

// nextLook is how long to leave the certificate alone: until it is due, but for
// an hour at most, since a host may be suspended or its clock be set; and never
// for less than a minute, or a twentieth of a short life, since near the end of
// the CA, or when none can be issued, it is due all the time.
func (s *Server) nextLook(now time.Time) time.Duration {
	due := pki.RenewAt(s.source.Keypair().Certificate()).Sub(now)
	return max(min(due, time.Hour), min(time.Minute, s.cfg.Times.Certificate/20))
}
