package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
)

// The states of a secret after Reseal.
const (
	Resealed   = "resealed"   // was sealed with an old key, and is now sealed with the current one
	Current    = "current"    // was already sealed with the current key
	Unreadable = "unreadable" // no known key opens it; left as it is
	Failed     = "failed"     // could not be read or written
)

// Sealing is the result for one secret.
type Sealing struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Err   error  `json:"-"` // if unreadable or failed
}

// resealPasses is the maximum number of passes of Reseal: the first one seals, the next one
// verifies that nothing is left, and each concurrent writer costs one more.
const resealPasses = 5

// pauseBetweenReseals is the pause after a secret was written concurrently.
const pauseBetweenReseals = 100 * time.Millisecond

// Reseal seals with the current key what is sealed with an old one, and repeats until a pass
// finds none. Each secret is one conditional write that is read back and opened, so that an
// interrupted call may be repeated, and two may run at once. Secrets that no key opens are
// left alone and listed. The error is nil only if every secret was read from storage and
// opened with the current key; the list is returned even with an error.
func (s *Sealed) Reseal(ctx context.Context) ([]Sealing, error) {
	states := map[string]Sealing{}
	var open []error
	for range resealPasses {
		names, err := s.names(ctx)
		if err != nil {
			return sorted(states), fmt.Errorf("reseal secrets: %w", err)
		}
		again := false
		open = nil
		for _, name := range names {
			now := s.resealOne(ctx, name)
			if now.State == "" {
				continue
			}
			again = again || now.State == Resealed
			if now.Err != nil {
				open = append(open, now.Err)
			}
			if was, seen := states[name]; !seen || now.State != Current || was.State != Resealed {
				states[name] = now
			}
		}
		if !again {
			return sorted(states), errors.Join(open...)
		}
	}
	return sorted(states), errors.Join(append(open, errors.New("reseal secrets: other servers still seal with an old key: "+
		"restart every server that does not have the new key as its encryption_key, and try again"))...)
}

func sorted(states map[string]Sealing) []Sealing {
	all := make([]Sealing, 0, len(states))
	for _, s := range states {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Sealing) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// names returns the names of all secrets: the listed ones, and those of every cluster, since a
// listing may lag.
func (s *Sealed) names(ctx context.Context) ([]string, error) {
	infos, err := object.All(ctx, s.store, s.prefix)
	if err != nil {
		return nil, err
	}
	names := []string{CABundleName, CAKeyName, NonceKeyName}
	for _, i := range infos {
		name := strings.TrimPrefix(i.Key, s.prefix)
		if CheckName(name) == nil && !slices.Contains(names, name) { // anything else can't be read as a secret
			names = append(names, name)
		}
	}
	return names, nil
}

func (s *Sealed) resealOne(ctx context.Context, name string) Sealing {
	state, err := s.reseal(ctx, name)
	if err != nil {
		err = fmt.Errorf("reseal secret %s%s: %w", s.prefix, name, err)
	}
	return Sealing{Name: name, State: state, Err: err}
}

func (s *Sealed) reseal(ctx context.Context, name string) (state string, err error) {
	key := s.prefix + name
	for {
		o, err := s.store.Get(ctx, key)
		if errors.Is(err, object.ErrNotFound) {
			return "", nil // deleted, or never created
		}
		if err != nil {
			return Failed, err
		}
		if _, err := s.current(key, o.Body); err == nil {
			return Current, nil
		}
		value, err := s.unseal(key, o.Body)
		if err != nil {
			return Unreadable, err
		}
		body, err := s.seal(key, value)
		if err != nil {
			return Failed, err
		}
		_, err = object.PutConfirmed(ctx, s.store, key, body, object.IfMatch(o.ETag))
		switch {
		case err == nil:
			return s.readBack(ctx, key, value)
		case !errors.Is(err, object.ErrConflict):
			return Failed, err
		}
		if err := retry.Wait(ctx, pauseBetweenReseals); err != nil {
			return Failed, fmt.Errorf("%w: %w", object.ErrConflict, err)
		}
	}
}

// readBack opens what was written, with the current key only.
func (s *Sealed) readBack(ctx context.Context, key string, value []byte) (string, error) {
	o, err := s.store.Get(ctx, key)
	if err != nil {
		return Failed, fmt.Errorf("read it back: %w", err)
	}
	got, err := s.current(key, o.Body)
	if err != nil {
		return Failed, fmt.Errorf("read it back: %w", err)
	}
	if !bytes.Equal(got, value) {
		return Failed, fmt.Errorf("read it back: %w: another value was stored meanwhile", object.ErrConflict)
	}
	return Resealed, nil
}

// current opens a body with the sealing key only.
func (s *Sealed) current(key string, body []byte) ([]byte, error) {
	one := Sealed{keys: s.keys[:1], aeads: s.aeads[:1]}
	return one.unseal(key, body)
}
