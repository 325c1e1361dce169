package awsclient

import (
	"context"
	"errors"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/middleware"
)

// refusal is what was said before an attempt, on its way out of a call.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// Ask asks permit, and marks what it says so that Refused finds it.
func Ask(ctx context.Context, permit func(context.Context) error) error {
	if err := permit(ctx); err != nil {
		return refusal{err}
	}
	return nil
}

// OneAttempt has a call be made once. Calls that change something are: a retry inside
// the SDK can't tell what a lost reply hid.
func OneAttempt() sdk.Retryer { return sdk.NopRetryer{} }

// Before returns what has the SDK ask permit right before each attempt is sent, after
// the credentials, which may have taken their time: what it permits is on its way.
func Before(permit func(context.Context) error) func(*middleware.Stack) error {
	ask := func(
		ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
	) (middleware.FinalizeOutput, middleware.Metadata, error) {
		if err := Ask(ctx, permit); err != nil {
			return middleware.FinalizeOutput{}, middleware.Metadata{}, err
		}
		return next.HandleFinalize(ctx, in)
	}
	return func(stack *middleware.Stack) error {
		return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("nstance:permit", ask), middleware.After)
	}
}

// Refused returns what was said before an attempt, if it is the reason for err.
func Refused(err error) (error, bool) {
	var r refusal
	if errors.As(err, &r) {
		return r.error, true
	}
	return nil, false
}
