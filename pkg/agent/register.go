package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// clockApart is a difference between the clocks of this machine and of the server that is told.
const clockApart = time.Minute

// tellClock warns if this machine's clock differs from that of the server that has just issued a
// certificate.
func (a *agent) tellClock(ctx context.Context, issued identity.Issued) {
	cert, err := pki.ParseCertificate([]byte(issued.Certificate))
	if err != nil {
		return // refused where it is used
	}
	if ahead := a.config.Now().Round(0).Sub(pki.MadeAt(cert)); ahead.Abs() > clockApart {
		a.config.Logger.LogAttrs(ctx, slog.LevelWarn, "the clocks of this machine and of the server differ: synchronize both",
			slog.Duration("ahead_by", ahead.Round(time.Second)))
	}
}

// registerTimeout bounds one attempt: the server answers after writing the record, which may
// be slow.
const registerTimeout = 30 * time.Second

// register exchanges the nonce and the key for a certificate, and returns once it is stored.
// Temporary errors are retried until ctx ends, or until the nonce expires and the server
// refuses it. The error is a finalError for a refusal, an identity.LocalError for an error of
// the directory, and ctx's error otherwise.
func (a *agent) register(ctx context.Context, client *rpc.Client) error {
	for failures, hops := 0, 0; ; {
		followed, err := a.requestCertificate(ctx, client)
		var local *identity.LocalError
		switch {
		case err == nil:
			return a.spend() // last: until then the nonce was the only way to get a certificate
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &local):
			return err
		case refused(err) && !ofClaims(err) || status.Code(err) == codes.NotFound && a.nonceEnded():
			return &finalError{fmt.Errorf("the server refused the registration nonce: %w", err)}
		case followed && hops < rpc.MaxHops:
			hops++
			continue
		}
		failures++
		wait := rpc.Backoff().Draw(failures, a.config.Random)
		a.tracker.failed(StateRegistering, err)
		a.config.Logger.LogAttrs(ctx, slog.LevelWarn, "could not register yet", slog.Any("error", err), slog.Duration("retry_in", wait))
		if retry.Wait(ctx, wait) != nil {
			return ctx.Err()
		}
		hops = 0
	}
}

// requestCertificate makes one attempt, and another with a new key if the server refuses the
// key as another instance's. A key with a certificate is kept.
func (a *agent) requestCertificate(ctx context.Context, client *rpc.Client) (followed bool, err error) {
	followed, err = a.attempt(ctx, client)
	if !rpc.KeyTaken(err) || a.Certificate() != nil {
		return followed, err
	}
	if err := a.setKeyAside(ctx, err); err != nil {
		return false, err
	}
	return a.attempt(ctx, client)
}

func (a *agent) attempt(ctx context.Context, client *rpc.Client) (followed bool, err error) {
	err = a.Obtain(ctx, func(ctx context.Context, publicKey string) (issued identity.Issued, err error) {
		issued, followed, err = a.requestFirst(ctx, client, publicKey)
		return issued, err
	})
	return followed, err
}

// setKeyAside sets aside a refused key. After a crash here the next start generates a key.
func (a *agent) setKeyAside(ctx context.Context, refusal error) error {
	err := a.Discard(func() error {
		return setInUseAside(ctx, a.folder.Files, identity.KeyName, a.config.Now(), a.config.Logger, slog.Any("refusal", refusal))
	})
	if err != nil {
		return fmt.Errorf("set aside the private key that belongs to another instance: %w", err)
	}
	return nil
}

func (a *agent) requestFirst(ctx context.Context, client *rpc.Client, publicKey string) (issued identity.Issued, followed bool, err error) {
	target, err := client.Target()
	if err != nil {
		return issued, false, err
	}
	attempt, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	request := &nstancev1.RegisterAgentRequest{Nonce: a.nonce, PublicKey: publicKey, Hostname: a.config.Hostname, Ips: a.config.ips()}
	answer, err := nstancev1.NewRegistrationServiceClient(target.Conn).RegisterAgent(attempt, request, grpc.WaitForReady(false))
	if err != nil {
		err = target.Explain(err)
		followed = client.Failed(target, err)
		if status.Code(err) == codes.DeadlineExceeded {
			client.Drop(target)
		}
	}
	if issued = issuedBy(answer.GetIdentity()); err == nil {
		a.tellClock(ctx, issued)
	}
	return issued, followed, err
}

func issuedBy(granted *nstancev1.Identity) identity.Issued {
	return identity.Issued{Certificate: granted.GetCertificate(), CAs: granted.GetCaChain(), Signature: granted.GetCaChainSignature()}
}

// nonceLeeway is how far a server's clock may be behind.
const nonceLeeway = time.Minute

// nonceEnded reports whether a NOT_FOUND is final. Until the nonce has expired, the server may
// not have seen the instance's record yet.
func (a *agent) nonceEnded() bool { return !a.config.Now().Before(a.ends.Add(nonceLeeway)) }

// ofClaims reports whether a registration was refused only for its host name and addresses.
// The server compares them with the provider's data, which may still change; until then each
// attempt logs the reason.
func ofClaims(err error) bool {
	wrong := rpc.Violations(err)
	return len(wrong) > 0 && !slices.ContainsFunc(wrong, func(v rpc.Violation) bool { return v.Field != "hostname" && v.Field != "ips" })
}

// refused reports whether the same nonce and key will always get this answer.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument,
		codes.FailedPrecondition, codes.AlreadyExists:
		return true
	default:
		return false
	}
}
