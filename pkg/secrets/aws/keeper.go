package aws

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/nstance/nstance/pkg/awscall"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/secrets"
)

// backend is what the two services differ in. Writes are one attempt each, and carry a
// token that is the same for each attempt of one write, and no other's.
type backend interface {
	// value returns a secret's, or errAbsent.
	value(ctx context.Context, name string) ([]byte, error)
	// create returns whether the write made the secret. doubt says that an earlier
	// attempt of it may have.
	create(ctx context.Context, name, token string, value []byte, doubt bool) (created bool, err error)
	// replace returns errAbsent when the service can't replace what is not there.
	replace(ctx context.Context, name, token string, value []byte) error
}

// keeper keeps secrets in one of the two services.
type keeper struct {
	backend backend
	limit   int // of a value, in bytes
	prefix  string
	random  io.Reader
}

var _ secrets.Secrets = (*keeper)(nil)

// A prefix is that of a policy's ARN, in which a parameter's name has its first slash
// already, and none of AWS's own.
var (
	prefixPattern = regexp.MustCompile(`^([A-Za-z0-9_.-]+/)+$`)
	reserved      = regexp.MustCompile(`^(?i:aws|ssm)`)
)

// newKeeper returns one whose names begin with root and then prefix.
func newKeeper(b backend, limit int, root, prefix string, random io.Reader, failed error) (secrets.Secrets, error) {
	if failed != nil {
		return nil, fmt.Errorf("open secrets: %w", failed)
	}
	if !prefixPattern.MatchString(prefix) || reserved.MatchString(prefix) || len(prefix) > 256 {
		return nil, fmt.Errorf("open secrets: prefix %.80q: want a path that begins with none of a slash, aws and ssm, and ends with a slash, "+
			"such as nstance/example/", prefix)
	}
	return &keeper{backend: b, limit: limit, prefix: root + prefix, random: random}, nil
}

// reads is how often a secret is looked for that is not there, and firstRead how long
// after the first time: 3.5 s later it is believed.
const (
	reads     = 4
	firstRead = 500 * time.Millisecond
	lastRead  = 2 * time.Second
)

// Get implements secrets.Secrets. One that is not there takes some seconds.
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

// Replace implements secrets.Secrets. Neither service has writes that depend on what is
// there: of two at a time the last one stays, and neither is told of a conflict.
func (k *keeper) Replace(ctx context.Context, name string, value []byte) error {
	return k.write(ctx, "replace", name, value, func(token string, doubt bool) error {
		err := k.backend.replace(ctx, k.prefix+name, token, value)
		if !errors.Is(err, errAbsent) {
			return err
		}
		created, err := k.backend.create(ctx, k.prefix+name, token, value, doubt)
		if err == nil && !created {
			return errAgain // somebody made it meanwhile
		}
		return err
	})
}

// errAgain says that a write has to be tried once more.
var errAgain = errors.New("somebody else wrote at the same time")

// write checks what is to be written, and attempts it until it is known what came of it,
// or ctx ends. A refusal says nothing of an attempt before it whose reply was lost.
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
			lost := !awscall.Refused(err)
			err = kindOf(err)
			switch {
			case errors.Is(err, object.ErrUnknown):
				doubt = doubt || lost
			case doubt:
				return fmt.Errorf("%s secret %s%s: %w: an attempt before may have done it: %w", verb, k.prefix, name, object.ErrUnknown, err)
			default:
				return fmt.Errorf("%s secret %s%s: %w", verb, k.prefix, name, err)
			}
		}
		if end := retry.Wait(ctx, backoff().Delay(n)); end != nil {
			return fmt.Errorf("%s secret %s%s: %w: %w; last answer: %w", verb, k.prefix, name, object.ErrUnknown, end, err)
		}
	}
}

// token is one that no other write has.
func (k *keeper) token() (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(k.random, b[:]); err != nil {
		return "", fmt.Errorf("read randomness for a token: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}
