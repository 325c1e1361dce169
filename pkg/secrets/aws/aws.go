// Package aws keeps secrets in AWS Secrets Manager or in Parameter Store, and reads
// encryption keys from either. Both encrypt with a key of KMS, so nothing is sealed
// here: whoever may read the secret at AWS has it.
//
// Their reads may lag behind writes. That a secret is not there is therefore believed
// only after several reads: a server that took a CA's key for lost because its first
// read was too early would ask for a person.
package aws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"time"

	"github.com/nstance/nstance/pkg/awscall"
	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/secrets"
)

// Open opens secrets as cfg says, wherever they are: it fills in all that can keep them, and
// all that can have their key, here and at AWS, which is called as c says.
func Open(ctx context.Context, cfg secrets.Config, getenv func(string) string, c awsclient.Config) (secrets.Secrets, error) {
	cfg.Sources, cfg.Backends = secrets.LocalSources(getenv), Backends(c)
	maps.Copy(cfg.Sources, Sources(c))
	return secrets.Open(ctx, cfg)
}

// Sources are the two as providers of encryption keys. A key's name there may be an ARN,
// whose region is then asked; any other name is asked for in that of c.
func Sources(c awsclient.Config) secrets.Sources {
	return secrets.Sources{
		secrets.ProviderSecretsManager: source(c, awsclient.SecretsManager, func(ctx context.Context, call caller, name string) ([]byte, error) {
			return manager{call}.value(ctx, name)
		}),
		secrets.ProviderParameterStore: source(c, awsclient.ParameterStore, func(ctx context.Context, call caller, name string) ([]byte, error) {
			text, err := store{call}.read(ctx, name)
			return []byte(text), err
		}),
	}
}

// source opens a service for each key, whose name may say the region.
func source(
	c awsclient.Config, of awsclient.Service, read func(ctx context.Context, call caller, name string) ([]byte, error),
) secrets.Source {
	return func(ctx context.Context, name string) ([]byte, error) {
		call, err := open(ctx, c, of, name)
		if err != nil {
			return nil, err
		}
		value, err := read(ctx, call, name)
		return value, inWords(err)
	}
}

// Backends are the two as keepers of secrets.
func Backends(c awsclient.Config) secrets.Backends {
	return secrets.Backends{
		secrets.ProviderSecretsManager: func(ctx context.Context, prefix string, random io.Reader) (secrets.Secrets, error) {
			call, err := open(ctx, c, awsclient.SecretsManager, "")
			return newKeeper(manager{call}, maxSecret, "", prefix, random, err)
		},
		secrets.ProviderParameterStore: func(ctx context.Context, prefix string, random io.Reader) (secrets.Secrets, error) {
			call, err := open(ctx, c, awsclient.ParameterStore, "")
			return newKeeper(store{call}, maxParameter, "/", prefix, random, err) // names with a slash in them have to begin with one
		},
	}
}

// caller makes calls of one of the two services.
type caller struct {
	client *awscall.Client
	target string // before an action's name
}

func (c caller) call(ctx context.Context, action string, in, out any, once bool) error {
	return c.client.JSON(ctx, c.target, action, in, out, awscall.Attempts{Once: once})
}

// regional takes the region from an ARN.
var regional = regexp.MustCompile(`^arn:aws[a-z-]*:(?:secretsmanager|ssm):([a-z0-9-]+):\d{12}:`)

// open finds out how a service is called, for what name names.
func open(ctx context.Context, c awsclient.Config, of awsclient.Service, name string) (caller, error) {
	if m := regional.FindStringSubmatch(name); m != nil {
		c.Region = m[1]
	}
	session, err := c.Open(ctx)
	if err != nil {
		return caller{}, err
	}
	target := "secretsmanager"
	if of == awsclient.ParameterStore {
		target = "AmazonSSM"
	}
	client, err := awscall.New(session, of)
	return caller{client, target}, err
}

// errAbsent says that a service has nothing by a name, as far as a read shows.
var errAbsent = errors.New("there is none by this name")

// errPoor says that a reply lacks what every success has. It is not the service's then, and
// what came of the call is not known.
var errPoor = errors.New("the reply lacks what it should tell: perhaps it is not from the service")

// complete returns an error if a reply without one lacks what it should have.
func complete(action string, there bool, err error) error {
	if err == nil && !there {
		return fmt.Errorf("%s: %w", action, errPoor)
	}
	return err
}

// inWords takes the status and the like off a refusal.
func inWords(err error) error {
	var e *awscall.Error
	if errors.As(err, &e) && e.Code != "" {
		return fmt.Errorf("AWS refuses %s: %s: %s", e.Action, e.Code, e.Message)
	}
	return err
}

// kindOf is how the port has the failure of a call: one whose outcome is not known, and
// one that may be over soon, is object.ErrUnknown.
func kindOf(err error) error {
	if awscall.Refused(err) && !passing(err) {
		return inWords(err)
	}
	return fmt.Errorf("%w: %w", object.ErrUnknown, err)
}

// passing reports whether a call had no effect for a reason that may be over soon:
// credentials that can't be had or ran out on the way, too many calls, or somebody else's
// write of the same parameter.
func passing(err error) bool {
	var none awsclient.CredentialsError
	return errors.As(err, &none) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		awscall.Throttled(err) || awsclient.Expired(err) || awscall.Coded(err, "TooManyUpdates")
}

// backoff is how long to wait from one attempt of a write to the next.
func backoff() retry.Backoff {
	return retry.Backoff{First: 100 * time.Millisecond, Limit: 5 * time.Second}
}
