package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	// maxKeysMessage is far more than a request for files.MaxKeys needs, in bytes.
	maxKeysMessage = 1 << 20
	// submitTimeout bounds one attempt to submit public keys.
	submitTimeout = 30 * time.Second
)

// Keys are the private keys of software on the instance. It is used by one goroutine at a
// time.
type Keys interface {
	// Public returns the public keys (PEM, PKIX) of the requested keys by name, generating
	// missing ones. The requests are valid and their names unique. The error covers keys that
	// failed, perhaps temporarily; the others are still returned.
	Public([]*nstancev1.KeyRequest) (map[string]string, error)
	// SetAside makes the next Public generate another key of that name, and never uses the
	// current one again.
	SetAside(name string) error
}

// readKeyRequests reads the stream of key requests until it ends. Each request replaces the
// previous one, answered or not.
func (h *holder) readKeyRequests(service nstancev1.AgentServiceClient) func(context.Context, func()) error {
	return func(ctx context.Context, opened func()) error {
		stream, err := service.KeyGenRequests(ctx, &nstancev1.KeyGenRequestsRequest{}, grpc.MaxCallRecvMsgSize(maxKeysMessage))
		if err != nil {
			return err
		}
		opened()
		stop := func() {}
		defer func() { stop() }()
		for {
			request, err := stream.Recv()
			if err != nil {
				return err
			}
			stop()
			stop = h.answerInBackground(ctx, service, request.GetKeys())
		}
	}
}

// answerInBackground answers one request without delaying the next; stop returns once the work
// has ended.
func (h *holder) answerInBackground(
	ctx context.Context, service nstancev1.AgentServiceClient, asked []*nstancev1.KeyRequest,
) (stop func()) {
	requests, err := checkKeyRequests(asked)
	if err != nil {
		h.Logger.LogAttrs(ctx, slog.LevelError, "the server requests keys that can't be generated", slog.Any("error", err))
	}
	if h.Keys == nil || len(requests) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var answering sync.WaitGroup
	answering.Go(func() { h.answerKeys(ctx, service, requests) })
	return func() {
		cancel()
		answering.Wait()
	}
}

// answerKeys submits the public keys, with retries until the server has all of them or ctx
// ends. A key that the server refuses as another instance's is replaced once, because a new
// key can't be another instance's.
func (h *holder) answerKeys(ctx context.Context, service nstancev1.AgentServiceClient, requests []*nstancev1.KeyRequest) {
	var handedIn map[string]string
	replaced := map[string]bool{}
	for failures := 1; ; failures++ {
		public, err := h.Keys.Public(requests)
		if !maps.Equal(public, handedIn) {
			submitted := submit(ctx, service, public)
			if submitted == nil {
				handedIn = public
			}
			if h.replaceTaken(ctx, submitted, public, replaced) {
				continue
			}
			err = errors.Join(err, submitted)
		}
		if err == nil || ctx.Err() != nil || status.Code(err) == codes.Unimplemented {
			return
		}
		wait := rpc.Backoff().Draw(failures, h.Random)
		h.Logger.LogAttrs(ctx, slog.LevelWarn, "could not submit the public keys yet", slog.Any("error", err), slog.Duration("retry_in", wait))
		if retry.Wait(ctx, wait) != nil {
			return
		}
	}
}

// replaceTaken sets aside the keys that the server refused as another instance's, except those
// already replaced, and reports whether there were any.
func (h *holder) replaceTaken(ctx context.Context, refusal error, public map[string]string, replaced map[string]bool) (again bool) {
	if !rpc.KeyTaken(refusal) {
		return false
	}
	for _, violation := range rpc.Violations(refusal) {
		for name := range public {
			if replaced[name] || violation.Field != rpc.SubmittedKey(name) {
				continue
			}
			if err := h.Keys.SetAside(name); err != nil {
				h.Logger.LogAttrs(ctx, slog.LevelError, "could not set aside a key that belongs to another instance", slog.String("key", name),
					slog.Any("error", err))
				continue
			}
			replaced[name], again = true, true
		}
	}
	return again
}

func submit(ctx context.Context, service nstancev1.AgentServiceClient, public map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	_, err := service.SubmitPublicKeys(ctx, &nstancev1.SubmitPublicKeysRequest{PublicKeys: public})
	return err
}

// checkKeyRequests returns the valid requests, and an error for the others.
func checkKeyRequests(asked []*nstancev1.KeyRequest) (valid []*nstancev1.KeyRequest, err error) {
	if len(asked) > files.MaxKeys {
		return nil, fmt.Errorf("%d keys: at most %d are allowed", len(asked), files.MaxKeys)
	}
	var problems []error
	for _, request := range asked {
		if err := checkKeyRequest(request, valid); err != nil {
			problems = append(problems, err)
			continue
		}
		valid = append(valid, request)
	}
	return valid, errors.Join(problems...)
}

func checkKeyRequest(request *nstancev1.KeyRequest, others []*nstancev1.KeyRequest) error {
	if err := files.CheckKeyName(request.GetName()); err != nil {
		return err
	}
	if !makesKeys(request.GetAlgorithm()) {
		return fmt.Errorf("key %s: algorithm %s is not supported by this version", request.GetName(), request.GetAlgorithm())
	}
	return checkSpelling(request.GetName(), others)
}
