package profile

import (
	"context"
	"errors"
	"os"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sso"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/nstance/nstance/pkg/awsclient"
)

// errNoKeys means that a successful reply has no keys, for example a proxy's page.
var errNoKeys = errors.New("the reply has no keys: it may not be from AWS")

// guarded makes a reply without keys an error: the SDK's callers assume that a successful reply
// has some, and panic otherwise.
func guarded(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("nstance:keys", func(
		ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
	) (middleware.InitializeOutput, middleware.Metadata, error) {
		out, about, err := next.HandleInitialize(ctx, in)
		if err == nil && !complete(out.Result) {
			err = errNoKeys
		}
		return out, about, err
	}), middleware.Before)
}

// encrypted refuses to send a request over plain HTTP to another machine: the response has keys.
func encrypted(stack *middleware.Stack) error {
	return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("nstance:encrypted", func(
		ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
	) (out middleware.FinalizeOutput, about middleware.Metadata, err error) {
		if r, ok := in.Request.(*smithyhttp.Request); ok {
			const from = "the endpoint of the keys (AWS_ENDPOINT_URL_…, endpoint_url)"
			if err := awsclient.CheckPlainUnlessAllowed(os.Getenv, from, r.URL.String()); err != nil {
				return out, about, err
			}
		}
		return next.HandleFinalize(ctx, in)
	}), middleware.After)
}

// complete reports whether a reply has all fields that are read from it.
func complete(reply any) bool {
	switch r := reply.(type) {
	case *sts.AssumeRoleOutput:
		return given(r.Credentials)
	case *sts.AssumeRoleWithWebIdentityOutput:
		return given(r.Credentials)
	case *sso.GetRoleCredentialsOutput:
		keys := r.RoleCredentials
		return keys != nil && sdk.ToString(keys.AccessKeyId) != "" && sdk.ToString(keys.SecretAccessKey) != ""
	}
	return true
}

func given(keys *types.Credentials) bool {
	return keys != nil && keys.AccessKeyId != nil && keys.SecretAccessKey != nil && keys.SessionToken != nil && keys.Expiration != nil
}
