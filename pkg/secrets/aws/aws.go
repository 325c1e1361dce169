// Package aws stores secrets in AWS Secrets Manager or Parameter Store, and reads encryption
// keys from either. Both encrypt with a KMS key, so nothing is sealed here: permission to read
// the secret at AWS suffices.
//
// Reads may lag behind writes. A secret therefore counts as missing only after several reads:
// otherwise a server whose first read was too early would take the CA's key for lost and
// require an administrator.
package aws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"time"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/secrets"
)

// Open opens the secrets configured in cfg, adding the AWS backends and key sources of this
// package to the built-in ones. AWS is called according to c.
func Open(ctx context.Context, cfg secrets.Config, getenv func(string) string, c awsclient.Config) (secrets.Secrets, error) {
	cfg.Sources, cfg.Backends = secrets.LocalSources(getenv), Backends(c)
	maps.Copy(cfg.Sources, Sources(c))
	return secrets.Open(ctx, cfg)
}

// Sources returns both services as sources of encryption keys. If a key's name is an ARN, its
// region is used; any other name is read from the region of c.
func Sources(c awsclient.Config) secrets.Sources {
	return secrets.Sources{
		secrets.ProviderSecretsManager: source(c, newManager, manager.value),
		secrets.ProviderParameterStore: source(c, newStore, func(s store, ctx context.Context, name string) ([]byte, error) {
			text, err := s.read(ctx, name)
			return []byte(text), err
		}),
	}
}

// source opens the service for each key, whose name may contain the region.
func source[S any](
	c awsclient.Config, open func(awsclient.Session) (S, error), read func(s S, ctx context.Context, name string) ([]byte, error),
) secrets.Source {
	return func(ctx context.Context, name string) ([]byte, error) {
		at := c
		if m := regional.FindStringSubmatch(name); m != nil {
			at.Region = m[1]
		}
		service, err := opened(ctx, at, open)
		if err != nil {
			return nil, err
		}
		return read(service, ctx, name)
	}
}

// Backends returns both services as backends for secrets.
func Backends(c awsclient.Config) secrets.Backends {
	return secrets.Backends{
		secrets.ProviderSecretsManager: func(ctx context.Context, prefix string, random io.Reader) (secrets.Secrets, error) {
			m, err := opened(ctx, c, newManager)
			return newKeeper(m, maxSecret, "", prefix, random, err)
		},
		secrets.ProviderParameterStore: func(ctx context.Context, prefix string, random io.Reader) (secrets.Secrets, error) {
			s, err := opened(ctx, c, newStore)
			return newKeeper(s, maxParameter, "/", prefix, random, err) // names that contain a slash must start with one
		},
	}
}

// opened opens a service, called according to c.
func opened[S any](ctx context.Context, c awsclient.Config, open func(awsclient.Session) (S, error)) (S, error) {
	session, err := c.Open(ctx)
	if err != nil {
		var none S
		return none, err
	}
	return open(session)
}

// regional matches the region in an ARN.
var regional = regexp.MustCompile(`^arn:aws[a-z-]*:(?:secretsmanager|ssm):([a-z0-9-]+):\d{12}:`)

// errAbsent means that a read found nothing with this name.
var errAbsent = errors.New("not found")

// errPoor means that a response lacks fields that every success has. It may not be from the
// service, so the outcome of the call is unknown.
var errPoor = errors.New("incomplete response, possibly not from the service")

// replied returns the error of a call; there reports whether the response has the fields that
// every success has.
func replied(action string, there bool, err error) error {
	if err == nil && !there {
		return fmt.Errorf("%s: %w", action, errPoor)
	}
	return awsclient.InWords(err)
}

// kindOf maps the error of a call: an unknown outcome, and an error that may be temporary,
// become object.ErrUnknown.
func kindOf(err error) error {
	if awsclient.NoEffect(err) && !passing(err) {
		return err
	}
	return fmt.Errorf("%w: %w", object.ErrUnknown, err)
}

// passing reports whether a call had no effect for a possibly temporary reason: missing or
// expired credentials, throttling, or a concurrent write of the same parameter.
func passing(err error) bool {
	var none awsclient.CredentialsError
	return errors.As(err, &none) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		awsclient.Throttled(err) || awsclient.Expired(err) || awsclient.Coded(err, "TooManyUpdates")
}

// backoff is the back-off between attempts of a write.
func backoff() retry.Backoff {
	return retry.Backoff{First: 100 * time.Millisecond, Limit: 5 * time.Second}
}
