package awsclient

import (
	"context"
	"errors"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go/middleware"
)

// refusal is an error of permit, before an attempt.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// Once makes a call without retries, as is needed for one that changes something: a retry
// inside the SDK can't tell what a lost reply hid, so the caller has to check. permit is called
// right before the attempt is sent, after the credentials, which may take time, are there; if
// it fails nothing is sent, and Refused returns its error. nil permits all.
func Once(retryer *sdk.Retryer, options *[]func(*middleware.Stack) error, permit func(context.Context) error) {
	*retryer = sdk.NopRetryer{}
	if permit == nil {
		return
	}
	ask := func(
		ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
	) (middleware.FinalizeOutput, middleware.Metadata, error) {
		if err := permit(ctx); err != nil {
			return middleware.FinalizeOutput{}, middleware.Metadata{}, refusal{err}
		}
		return next.HandleFinalize(ctx, in)
	}
	all := *options
	*options = append(all[:len(all):len(all)], func(stack *middleware.Stack) error {
		return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("nstance:permit", ask), middleware.After)
	})
}

// Refused returns the error of permit, if that is the reason for err.
func Refused(err error) (error, bool) {
	var r refusal
	if errors.As(err, &r) {
		return r.error, true
	}
	return nil, false
}

// Back-off between the retries of Brief, which doubles.
const (
	attempts  = 4
	firstWait = 200 * time.Millisecond
)

func fewAttempts() sdk.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts, o.RateLimiter = attempts, ratelimit.None
		o.Backoff = retry.BackoffDelayerFunc(func(failed int, _ error) (time.Duration, error) { return firstWait << (failed - 1), nil })
		again := func(err error) sdk.Ternary { return sdk.BoolTernary(temporary(err)) }
		o.Retryables = []retry.IsErrorRetryable{retry.IsErrorRetryableFunc(again)}
	})
}
