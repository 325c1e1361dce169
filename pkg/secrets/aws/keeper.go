package aws

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/secrets"
)

// backend is the difference between the two services. Each write is one attempt, with a token
// that is shared by all attempts of the write and unique to it.
type backend interface {
	// value returns a secret's value, or errAbsent.
	value(ctx context.Context, name string) ([]byte, error)
	// create reports whether this write created the secret. doubt: an earlier attempt of the
	// write may have succeeded.
	create(ctx context.Context, name, token string, value []byte, doubt bool) (created bool, err error)
	// replace returns errAbsent if the service can't replace a missing secret.
	replace(ctx context.Context, name, token string, value []byte) error
}

// keeper stores secrets in one of the two services.
type keeper struct {
	backend backend
	limit   int // of a value, in bytes
	prefix  string
	random  io.Reader
}

var _ secrets.Secrets = (*keeper)(nil)

// A prefix as in a policy's ARN, where a parameter's name already has its leading slash,
// without the names reserved by AWS.
var (
	prefixPattern = regexp.MustCompile(`^([A-Za-z0-9_.-]+/)+$`)
	reserved      = regexp.MustCompile(`^(?i:aws|ssm)`)
)

// newKeeper returns a keeper whose names start with root and then prefix.
func newKeeper(b backend, limit int, root, prefix string, random io.Reader, failed error) (secrets.Secrets, error) {
	if failed != nil {
		return nil, fmt.Errorf("open secrets: %w", failed)
	}
	if !prefixPattern.MatchString(prefix) || reserved.MatchString(prefix) || len(prefix) > 256 {
		return nil, fmt.Errorf("open secrets: prefix %.80q: want a path that does not start with a slash, aws or ssm, and ends with a slash, "+
			"such as nstance/example/", prefix)
	}
	return &keeper{backend: b, limit: limit, prefix: root + prefix, random: random}, nil
}

// reads is how often a missing secret is read, and firstRead the wait after the first read:
// after 3.5 s in total it counts as missing.
const (
	reads     = 4
	firstRead = 500 * time.Millisecond
	lastRead  = 2 * time.Second
)

// Get implements secrets.Secrets. It takes some seconds for a missing secret.
func (k *keeper) Get(ctx context.Context, name string) ([]byte, error) {
	if err := secrets.CheckName(name); err != nil {
		return nil, fmt.Errorf("get secret: %w", err)
	}
	between := retry.Backoff{First: firstRead, Limit: lastRead}
	for n := 1; ; n++ {
		value, err := k.backend.value(ctx, k.prefix+name)
		switch {
		case err == nil:
			return value, nil
		case errors.Is(err, secrets.ErrSealed):
			return nil, fmt.Errorf("get secret %s%s: %w", k.prefix, name, err)
		case !errors.Is(err, errAbsent):
			return nil, fmt.Errorf("get secret %s%s: %w", k.prefix, name, kindOf(err))
		case n == reads:
			return nil, fmt.Errorf("get secret %s%s: %w", k.prefix, name, secrets.ErrNotFound)
		}
		if err := retry.Wait(ctx, between.Delay(n)); err != nil {
			return nil, fmt.Errorf("get secret %s%s: %w: %w", k.prefix, name, object.ErrUnknown, err)
		}
	}
}

// Create implements secrets.Secrets.
func (k *keeper) Create(ctx context.Context, name string, value []byte) (created bool, err error) {
	err = k.write(ctx, "create", name, value, func(token string, doubt bool) error {
		var failed error
		created, failed = k.backend.create(ctx, k.prefix+name, token, value, doubt)
		return failed
	})
	return created && err == nil, err
}

// Replace implements secrets.Secrets. Neither service has conditional writes: of two
// concurrent ones the last wins, without a conflict error.
func (k *keeper) Replace(ctx context.Context, name string, value []byte) error {
	return k.write(ctx, "replace", name, value, func(token string, doubt bool) error {
		err := k.backend.replace(ctx, k.prefix+name, token, value)
		if !errors.Is(err, errAbsent) {
			return err
		}
		created, err := k.backend.create(ctx, k.prefix+name, token, value, doubt)
		if err == nil && !created {
			return errAgain // created meanwhile
		}
		return err
	})
}

// errAgain means that a write must be retried.
var errAgain = errors.New("another writer wrote at the same time")

// write checks the value and retries the write until its outcome is known or ctx ends. A
// refusal says nothing about an earlier attempt whose response was lost.
func (k *keeper) write(ctx context.Context, verb, name string, value []byte, attempt func(token string, doubt bool) error) error {
	if err := secrets.CheckName(name); err != nil {
		return fmt.Errorf("%s secret: %w", verb, err)
	}
	if len(value) == 0 || len(value) > k.limit {
		return fmt.Errorf("%s secret %s%s: %d bytes, want 1 to %d", verb, k.prefix, name, len(value), k.limit)
	}
	token, err := k.token()
	if err != nil {
		return fmt.Errorf("%s secret %s%s: %w", verb, k.prefix, name, err)
	}
	doubt := false
	for n := 1; ; n++ {
		err := attempt(token, doubt)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errAgain) {
			lost := !awsclient.NoEffect(err)
			err = kindOf(err)
			switch {
			case errors.Is(err, object.ErrUnknown):
				doubt = doubt || lost
			case doubt:
				return fmt.Errorf("%s secret %s%s: %w: an earlier attempt may have succeeded: %w", verb, k.prefix, name, object.ErrUnknown, err)
			default:
				return fmt.Errorf("%s secret %s%s: %w", verb, k.prefix, name, err)
			}
		}
		if end := retry.Wait(ctx, backoff().Delay(n)); end != nil {
			return fmt.Errorf("%s secret %s%s: %w: %w; last error: %w", verb, k.prefix, name, object.ErrUnknown, end, err)
		}
	}
}

// token returns a unique token.
func (k *keeper) token() (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(k.random, b[:]); err != nil {
		return "", fmt.Errorf("read randomness for a token: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}
