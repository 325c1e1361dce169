package aws

import (
	"context"
	"errors"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/middleware"

	"github.com/nstance/nstance/pkg/provider"
)

// refusal is the guard's own error on its way through the SDK.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// mutation makes a call one that changes something: there is one attempt, before which
// the guard is asked. It is asked last, after the credentials, which may have taken
// their time: what it permits is on its way.
func mutation(o *ec2.Options) {
	o.Retryer = sdk.NopRetryer{}
	o.APIOptions = append(o.APIOptions[:len(o.APIOptions):len(o.APIOptions)], func(stack *middleware.Stack) error {
		return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("nstance:permit", permit), middleware.After)
	})
}

func permit(
	ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
) (middleware.FinalizeOutput, middleware.Metadata, error) {
	if err := provider.Permit(ctx); err != nil {
		return middleware.FinalizeOutput{}, middleware.Metadata{}, refusal{err}
	}
	return next.HandleFinalize(ctx, in)
}

// refused returns what the guard said, if it is the reason for err.
func refused(err error) (error, bool) {
	var r refusal
	if errors.As(err, &r) {
		return r.error, true
	}
	return nil, false
}
