package agent

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	// renewTimeout bounds one attempt, in which all servers may be asked.
	renewTimeout = 30 * time.Second
	// lookMost is the longest that the certificate is left alone: a machine may be
	// suspended, and its clock be set.
	lookMost = time.Hour
	// renewRetry is the wait after the first attempt; it doubles with each, up to
	// lookMost. Certificates of a short life have shorter ones.
	renewRetry    = time.Minute
	renewRetryMin = 100 * time.Millisecond
)

// renewAt is when a certificate is renewed: at two thirds of its life, or up to a
// twentieth of it sooner. spread, from [0, 1), is the machine's own share of
// that, so that machines made in one minute do not all come in one minute.
func renewAt(cert *x509.Certificate, spread float64) time.Time {
	early := time.Duration(spread * float64(pki.Life(cert)/20))
	return pki.RenewAt(cert).Add(-early)
}

// retryAfter is the wait after an attempt, of which as many went before as
// failures says.
func retryAfter(cert *x509.Certificate, failures int, spread float64) time.Duration {
	first := min(max(pki.Life(cert)/300, renewRetryMin), renewRetry)
	wait := retry.Backoff{First: first, Limit: min(first<<10, lookMost)}.Delay(failures + 1)
	return wait/2 + time.Duration(spread*float64(wait/2))
}

// keepCertificate renews the certificate before it ends, for as long as ctx
// lasts. The connections of client that are open go on, and new ones show the
// new certificate.
//
// Every attempt is followed by a wait that grows, a successful one too: where
// the clock is so wrong that each new certificate seems due, that is all that
// stands between the machine and the server.
func (a *agent) keepCertificate(ctx context.Context, client *rpc.Client) {
	spread := a.config.Random()
	for failures := 0; ctx.Err() == nil; {
		cert := a.identity.source.Keypair().Certificate()
		left := renewAt(cert, spread).Sub(a.config.Now())
		if left > 0 {
			failures = 0
			_ = retry.Wait(ctx, min(left, lookMost)) // fails when ctx ends, which ends the loop
			continue
		}
		wait := retryAfter(cert, failures, a.config.Random())
		failures++
		switch err := a.renew(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil:
			a.notRenewed(ctx, cert, err, wait)
		default:
			spread = a.config.Random()
			a.renewed(ctx, client)
		}
		_ = retry.Wait(ctx, wait)
	}
}

// renew makes one attempt to get and store another certificate, for another key.
func (a *agent) renew(ctx context.Context) error {
	key, err := a.identity.nextKey(a.config.Entropy)
	if err != nil {
		return err
	}
	public, err := pki.EncodePublicKey(pki.PublicKey(key))
	if err != nil {
		return err
	}
	// A connection of its own shows the present certificate for certain: the one
	// that holds the streams may be as old as the agent.
	client, err := a.client(a.config.AgentAddrs)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	var granted *nstancev1.Identity
	err = client.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		answer, err := nstancev1.NewAgentServiceClient(conn).RenewCertificate(ctx, &nstancev1.AgentServiceRenewCertificateRequest{PublicKey: string(public)})
		granted = answer.GetIdentity()
		return err
	})
	if err != nil {
		return err
	}
	return a.identity.replace(granted.GetCertificate(), granted.GetCaChain(), key, string(a.config.InstanceID))
}

func (a *agent) renewed(ctx context.Context, client *rpc.Client) {
	cert := a.identity.source.Keypair().Certificate()
	a.tracker.registered(cert)
	a.config.Logger.LogAttrs(ctx, slog.LevelInfo, "renewed the certificate",
		slog.String("serial", pki.SerialHex(cert)), slog.Time("certificate_expires", cert.NotAfter))
	if err := client.TurnOver(); err != nil {
		a.config.Logger.LogAttrs(ctx, slog.LevelWarn, "could not prepare a connection with the renewed certificate", slog.Any("error", err))
	}
}

func (a *agent) notRenewed(ctx context.Context, cert *x509.Certificate, err error, wait time.Duration) {
	if a.expired() {
		a.config.Logger.LogAttrs(ctx, slog.LevelError, "the certificate has ended, and the nonce to get another with is spent: "+onlyTheClock,
			slog.Any("error", err), slog.Time("certificate_expired", cert.NotAfter), slog.Duration("retry_in", wait))
		return
	}
	a.config.Logger.LogAttrs(ctx, slog.LevelWarn, "could not renew the certificate yet", slog.Any("error", err),
		slog.Time("certificate_expires", cert.NotAfter), slog.Duration("retry_in", wait))
}

// expired reports whether the certificate has ended, as far as the clock here
// can tell.
func (a *agent) expired() bool {
	return a.config.Now().After(a.identity.source.Keypair().Certificate().NotAfter)
}

const onlyTheClock = "if the clock of this machine is right it can't come back, and the server puts another instance in its place"

func expiredText(end time.Time) string {
	return fmt.Sprintf("the certificate ended at %s, and the nonce to get another with is spent: %s", end.UTC().Format(time.RFC3339), onlyTheClock)
}
