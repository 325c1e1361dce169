package awsclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
)

// Keys are what calls are signed with.
type Keys = sdk.Credentials

// CredentialsProvider has keys. It is safe for concurrent use.
type CredentialsProvider = sdk.CredentialsProvider

const (
	// fetchTime is how long a call waits for keys: less than an attempt of one may
	// take.
	fetchTime = 8 * time.Second
	// fetchPause is how soon keys are asked for again that could not be had, or were
	// nearly over when they came.
	fetchPause = time.Second
	// ahead is how long before their end keys are asked for anew, so that none ends on
	// its way. Keys with a short life are renewed when a quarter of it is left.
	ahead = 5 * time.Minute
	// often is how soon keys are asked for anew that live longer than that: the role may be
	// another by then.
	often = time.Hour
	// undated is how soon keys are asked for anew that never expire: the file that they are
	// of may have been edited.
	undated = time.Minute
)

// Keeper keeps keys until they expire. It is safe for concurrent use.
//
// A source that fails, or hangs, costs nothing as long as the keys that are there are
// good: they are handed out at once, and renewed beside. The SDK's own cache waits for
// what it asks, and uses keys to their last moment.
type Keeper struct {
	source func(context.Context) (Keys, error)

	mu     sync.Mutex
	keys   Keys
	renew  time.Time     // when to ask for others
	failed error         // why the last ones could not be had; nil: they could
	doubts bool          // a service has refused the keys: others are waited for
	flight chan struct{} // closed when the source has answered; nil: it is not being asked
}

var _ sdk.CredentialsProvider = (*Keeper)(nil)

// Keep returns a Keeper of what a source gives. The source is asked by one at a time, and
// its context ends after fetchTime.
func Keep(source func(context.Context) (Keys, error)) *Keeper { return &Keeper{source: source} }

// Retrieve implements sdk.CredentialsProvider. It takes no longer than ctx or fetchTime,
// even if the source minds neither.
func (k *Keeper) Retrieve(ctx context.Context) (Keys, error) {
	late := fmt.Errorf("the source of credentials did not answer in %s: %w", fetchTime, context.DeadlineExceeded)
	waiting, cancel := context.WithTimeoutCause(ctx, fetchTime, late)
	defer cancel()
	for {
		keys, flight, err := k.have(ctx)
		if flight == nil {
			return keys, err
		}
		select {
		case <-flight:
		case <-waiting.Done():
			return Keys{}, context.Cause(waiting)
		}
	}
}

// have returns the keys, or why there are none; or else when to look again. It asks the
// source if it is time to.
func (k *Keeper) have(ctx context.Context) (Keys, <-chan struct{}, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	waits := now.Before(k.renew)
	if !waits && k.flight == nil {
		k.flight = make(chan struct{})
		go k.fetch(context.WithoutCancel(ctx), k.flight)
	}
	switch good := k.keys.HasKeys() && !k.doubts && (!k.keys.CanExpire || now.Before(k.keys.Expires)); {
	case good, waits && k.failed == nil: // what came expired may be so only by this machine's clock
		return k.keys, nil, nil
	case waits:
		return Keys{}, nil, k.failed
	default:
		return Keys{}, k.flight, nil
	}
}

// fetch asks the source once.
func (k *Keeper) fetch(ctx context.Context, flight chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	keys, err := k.source(ctx)
	if err == nil && !keys.HasKeys() {
		err = errors.New("the source of credentials gives none")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.flight, k.failed, k.renew, k.doubts = nil, err, now.Add(fetchPause), false
	if err == nil {
		k.keys = keys
		k.renew = renewal(keys, now)
	}
	close(flight)
}

// renewal is when keys that have just come are to be asked for anew: by the clock on the
// wall, as they expire, which goes on while a machine is paused.
func renewal(keys Keys, now time.Time) time.Time {
	now = now.Round(0)
	if !keys.CanExpire {
		return now.Add(undated)
	}
	life := keys.Expires.Sub(now)
	return now.Add(max(fetchPause, min(often, life-min(ahead, life/4))))
}

// Forget has the next Retrieve ask the source, and wait for it, if the keys by this id are
// those that are kept, or id is empty: a service has refused them. They are kept all the
// same until the source has answered, since it may be the clock here that is wrong.
func (k *Keeper) Forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if id == "" || k.keys.AccessKeyID == id {
		k.doubts, k.renew = true, time.Time{}
	}
}
