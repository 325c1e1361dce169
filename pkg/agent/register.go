package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// registerTimeout bounds one attempt: the server answers once the record is
// written, which a slow store may hold up.
const registerTimeout = 30 * time.Second

// register trades the nonce and the key for a certificate, and returns when it
// is stored. Whatever may pass is tried again until ctx ends; the nonce's own
// life ends it at the latest, because the server then refuses it. The error is a
// finalError for a refusal, a storeError for trouble with the directory, and
// ctx's otherwise.
func (a *agent) register(ctx context.Context, client *rpc.Client) error {
	request, err := a.registration()
	if err != nil {
		return err
	}
	for failures, hops := 0, 0; ; {
		followed, err := a.ask(ctx, client, request)
		var stored *storeError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &stored):
			return err
		case refused(err) || status.Code(err) == codes.NotFound && a.nonceEnded():
			return &finalError{fmt.Errorf("the server refused the registration nonce: %w", err)}
		case followed && hops < maxHops:
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

func (a *agent) registration() (*nstancev1.RegisterAgentRequest, error) {
	public, err := pki.EncodePublicKey(pki.PublicKey(a.identity.key))
	if err != nil {
		return nil, err
	}
	return &nstancev1.RegisterAgentRequest{
		Nonce:     a.identity.nonce,
		PublicKey: string(public),
		Hostname:  a.config.Hostname,
		Ips:       a.config.ips(),
	}, nil
}

// ask makes one attempt.
func (a *agent) ask(ctx context.Context, client *rpc.Client, request *nstancev1.RegisterAgentRequest) (followed bool, err error) {
	target, err := client.Target()
	if err != nil {
		return false, err
	}
	attempt, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	answer, err := nstancev1.NewRegistrationServiceClient(target.Conn).RegisterAgent(attempt, request, grpc.WaitForReady(false))
	if err != nil {
		followed = client.Failed(target, err)
		if status.Code(err) == codes.DeadlineExceeded {
			client.Drop(target)
		}
		return followed, err
	}
	granted := answer.GetIdentity()
	return false, a.identity.accept(granted.GetCertificate(), granted.GetCaChain(), string(a.config.InstanceID), a.config.Now())
}

// nonceLeeway is how far a server's clock may be behind ours.
const nonceLeeway = time.Minute

// nonceEnded reports whether a NOT_FOUND is final. Before the end of the nonce's
// life the server that answers may just not see the instance's record yet.
func (a *agent) nonceEnded() bool { return !a.config.Now().Before(a.identity.ends.Add(nonceLeeway)) }

// refused tells the answers that the same nonce and key will always get.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument,
		codes.FailedPrecondition, codes.AlreadyExists:
		return true
	default:
		return false
	}
}
