package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// renewTimeout bounds one attempt, in which all servers may be tried.
const renewTimeout = 30 * time.Second

// runRenewal renews the certificate before it expires, until ctx ends. Open connections of
// client stay open, and new ones use the new certificate.
func (a *agent) runRenewal(ctx context.Context, client *rpc.Client) {
	a.RunRenewal(ctx, identity.RenewalConfig{
		Ask: a.requestRenewal, Random: a.config.Random,
		Done: func(ctx context.Context, err error, wait time.Duration) {
			if err != nil {
				a.notRenewed(ctx, err, wait)
				return
			}
			a.renewed(ctx, client)
		},
	})
}

// requestRenewal uses a new connection, so that it presents the current certificate: the
// connection of the streams may be as old as the agent.
func (a *agent) requestRenewal(ctx context.Context, publicKey string) (issued identity.Issued, err error) {
	client, err := a.client(a.config.AgentAddrs)
	if err != nil {
		return issued, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(rpc.WithRun(ctx, a.run), renewTimeout)
	defer cancel()
	err = client.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		request := &nstancev1.AgentServiceRenewCertificateRequest{PublicKey: publicKey}
		answer, err := nstancev1.NewAgentServiceClient(conn).RenewCertificate(ctx, request)
		if issued = issuedBy(answer.GetIdentity()); err == nil {
			a.tellClock(ctx, issued)
		}
		return err
	})
	return issued, err
}

func (a *agent) renewed(ctx context.Context, client *rpc.Client) {
	cert := a.Certificate()
	a.tracker.registered(cert)
	a.config.Logger.LogAttrs(ctx, slog.LevelInfo, "renewed the certificate",
		slog.String("serial", pki.SerialHex(cert)), slog.Time("certificate_expires", cert.NotAfter))
	if err := client.TurnOver(); err != nil {
		a.config.Logger.LogAttrs(ctx, slog.LevelWarn, "could not prepare a connection with the renewed certificate", slog.Any("error", err))
	}
}

// setNextAside sets aside the next key after a server refused it as another instance's, once:
// the next attempt generates another.
func (a *agent) setNextAside(ctx context.Context) {
	if err := setInUseAside(ctx, a.folder.Files, identity.NextName, a.config.Now(), a.config.Logger); err != nil {
		a.config.Logger.LogAttrs(ctx, slog.LevelError, "could not set aside the next private key, which belongs to another instance",
			slog.Any("error", err))
		return
	}
	a.nextReplaced = true
}

func (a *agent) notRenewed(ctx context.Context, err error, wait time.Duration) {
	if rpc.KeyTaken(err) && !a.nextReplaced {
		a.setNextAside(ctx)
	}
	end := a.Certificate().NotAfter
	if a.expired() {
		a.config.Logger.LogAttrs(ctx, slog.LevelError, "the certificate has expired, and the nonce to get another one is spent: "+onlyTheClock,
			slog.Any("error", err), slog.Time("certificate_expired", end), slog.Duration("retry_in", wait))
		return
	}
	a.config.Logger.LogAttrs(ctx, slog.LevelWarn, "could not renew the certificate yet", slog.Any("error", err),
		slog.Time("certificate_expires", end), slog.Duration("retry_in", wait))
}

// expired reports whether the certificate has expired according to the local clock.
func (a *agent) expired() bool { return a.config.Now().After(a.Certificate().NotAfter) }

const onlyTheClock = "if this machine's clock is right, the agent can't reconnect and the server will replace the instance"

func expiredText(end time.Time) string {
	return fmt.Sprintf("the certificate expired at %s, and the nonce to get another one is spent: %s", end.UTC().Format(time.RFC3339),
		onlyTheClock)
}
