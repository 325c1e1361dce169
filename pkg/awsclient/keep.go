package awsclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
)

// Keys are credentials that calls are signed with.
type Keys = sdk.Credentials

// CredentialsProvider provides credentials. It is safe for concurrent use.
type CredentialsProvider = sdk.CredentialsProvider

const (
	// fetchTime is how long a call waits for keys: less than the timeout of an attempt.
	fetchTime = 8 * time.Second
	// fetchPause is the delay before keys are fetched again after a failure, or if they were
	// about to expire on arrival.
	fetchPause = time.Second
	// ahead is how long before their expiry keys are renewed, so that none expires in flight.
	// Short-lived keys are renewed when a quarter of their lifetime is left.
	ahead = 5 * time.Minute
	// often is the maximum age of keys with a longer lifetime: the role may have changed.
	often = time.Hour
	// undated is the maximum age of keys that never expire: their file may have been edited.
	undated = time.Minute
)

// Keeper caches keys until they expire. It is safe for concurrent use.
//
// A failing or hanging source costs nothing while the cached keys are valid: they are
// returned at once and renewed in the background. The SDK's own cache blocks on its source, and
// uses keys until they expire.
type Keeper struct {
	source func(context.Context) (Keys, error)

	mu     sync.Mutex
	keys   Keys
	renew  time.Time     // when to renew
	failed error         // error of the last fetch; nil: it succeeded
	doubts bool          // a service refused the keys: Retrieve waits for new ones
	flight chan struct{} // closed when the fetch in progress ends; nil: none
}

var _ sdk.CredentialsProvider = (*Keeper)(nil)

// Keep returns a Keeper of a source. At most one fetch runs at a time, and its context ends
// after fetchTime.
func Keep(source func(context.Context) (Keys, error)) *Keeper { return &Keeper{source: source} }

// Retrieve implements sdk.CredentialsProvider. It returns when ctx ends or after fetchTime,
// even if the source ignores its context.
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

// have returns the keys or the error, or else a channel to wait on. It starts a fetch if one is
// due.
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
	case good, waits && k.failed == nil: // keys that look expired may be so only by this machine's clock
		return k.keys, nil, nil
	case waits:
		return Keys{}, nil, k.failed
	default:
		return Keys{}, k.flight, nil
	}
}

// fetch calls the source once.
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

// renewal returns when new keys are to be renewed: by the wall clock, as their expiry is, which
// continues while a machine is paused.
func renewal(keys Keys, now time.Time) time.Time {
	now = now.Round(0)
	if !keys.CanExpire {
		return now.Add(undated)
	}
	life := keys.Expires.Sub(now)
	return now.Add(max(fetchPause, min(often, life-min(ahead, life/4))))
}

// Forget makes the next Retrieve fetch and wait for new keys, if the cached keys have this ID
// or id is empty: a service has refused them. They stay cached until the source has answered,
// as the local clock may be the one that is wrong.
func (k *Keeper) Forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if id == "" || k.keys.AccessKeyID == id {
		k.doubts, k.renew = true, time.Time{}
	}
}
