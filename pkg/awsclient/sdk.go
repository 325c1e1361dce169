package awsclient

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// This file configures the SDK's clients. Callers keep the client methods they use as functions
// rather than the client: the linker keeps all methods of a value stored in a struct, and EC2's
// are 30 MB.

// attemptTime bounds one attempt of Brief, from the request to the end of the reply; otherwise
// a lost reply would block the caller forever.
const attemptTime = 10 * time.Second

// maxReply bounds the size of such a reply in bytes: thousands of targets, or a secret.
const maxReply = 8 << 20

// SDK returns the configuration of a service's SDK client. It fails if the service's URL is
// unknown: for a region of no known partition the SDK would fall back to amazonaws.com. Retries
// are the SDK's, and calls are bounded by their context only.
func (s Session) SDK(of Service) (sdk.Config, error) {
	url, err := s.URL(of)
	return sdk.Config{
		Region: s.Region, Credentials: s.Credentials, HTTPClient: s.HTTPClient, RetryMode: sdk.RetryModeStandard,
		BaseEndpoint: &url, APIOptions: []func(*middleware.Stack) error{s.forgetting},
	}, err
}

// Brief is SDK for a service that answers quickly. Each attempt times out after 10 s, and a
// call is retried a few times on timeouts, server errors and throttling; use Once for calls
// that change something.
func (s Session) Brief(of Service) (sdk.Config, error) {
	cfg, err := s.SDK(of)
	cfg.Retryer = fewAttempts
	cfg.APIOptions = append(cfg.APIOptions, brief, ownReply)
	return cfg, err
}

// attempt is one signed attempt of a call.
type attempt func(context.Context) error

// around adds a middleware around each attempt.
func around(stack *middleware.Stack, id string, do func(context.Context, middleware.DeserializeInput, attempt) error) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc(id, func(
		ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
	) (out middleware.DeserializeOutput, more middleware.Metadata, err error) {
		err = do(ctx, in, func(ctx context.Context) error {
			out, more, err = next.HandleDeserialize(ctx, in)
			return err
		})
		return out, more, err
	}), middleware.Before)
}

// forgetting drops cached keys once a service reports them as expired: they would be refused
// again.
func (s Session) forgetting(stack *middleware.Stack) error {
	return around(stack, "nstance:forget", func(ctx context.Context, in middleware.DeserializeInput, try attempt) error {
		err := try(ctx)
		if r, ok := in.Request.(*smithyhttp.Request); ok && Expired(err) {
			_, signed, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
			id, _, _ := strings.Cut(signed, "/")
			s.Forget(id)
		}
		return err
	})
}

func brief(stack *middleware.Stack) error {
	return around(stack, "nstance:brief", func(ctx context.Context, _ middleware.DeserializeInput, try attempt) error {
		ctx, cancel := context.WithTimeout(ctx, attemptTime)
		defer cancel()
		return try(ctx)
	})
}

// ownReply accepts a success only if the reply is the action's own. The SDK accepts any page of
// a proxy where it reads nothing from the reply.
func ownReply(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("nstance:reply", func(
		ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
	) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, more, err := next.HandleDeserialize(ctx, in)
		reply, ok := out.RawResponse.(*smithyhttp.Response)
		if err != nil || !ok || reply.StatusCode >= http.StatusMultipleChoices {
			return out, more, err
		}
		body, err := io.ReadAll(io.LimitReader(reply.Body, maxReply+1))
		err = errors.Join(err, reply.Body.Close())
		reply.Body = io.NopCloser(bytes.NewReader(body))
		switch r, ok := in.Request.(*smithyhttp.Request); {
		case err != nil:
			err = fmt.Errorf("read the reply: %w", err)
		case len(body) > maxReply:
			err = fmt.Errorf("the reply is longer than %d bytes", maxReply)
		case ok && strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded"):
			err = checkQuery(middleware.GetOperationName(ctx)+"Response", body)
		}
		return out, more, err
	}), middleware.After)
}

// checkQuery checks the root element of a reply of the query protocol.
func checkQuery(want string, body []byte) error {
	var root struct{ XMLName xml.Name }
	err := xml.Unmarshal(body, &root)
	if err == nil && root.XMLName.Local != want {
		err = fmt.Errorf("the reply is a <%.80s>, want a <%s>: it may not be from the service", root.XMLName.Local, want)
	}
	if err != nil {
		return &smithy.DeserializationError{Err: err}
	}
	return nil
}
