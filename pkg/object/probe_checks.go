package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// makeAgain recreates the deleted object. A store that keeps a delete marker may refuse that
// forever although the object does not exist.
func (p *probe) makeAgain(ctx context.Context) error {
	body := p.body("again")
	for n := 1; ; n++ {
		_, err := PutConfirmed(ctx, p.store, p.key, body, IfAbsent())
		if !errors.Is(err, ErrConflict) {
			return err
		}
		o, err := p.store.Get(ctx, p.key)
		switch {
		case err == nil && bytes.Equal(o.Body, body):
			return nil
		case err == nil:
			return fmt.Errorf("%w: a write of this check without a reply has landed late at %s", ErrUnknown, p.key)
		case !errors.Is(err, ErrNotFound):
			return err
		case n == probeRetries:
			return lacks("if-absent after a deletion is refused while a read finds nothing")
		}
		if err := retry.Wait(ctx, confirmBackoff().Delay(n)); err != nil {
			return fmt.Errorf("%w: %w", ErrUnknown, err)
		}
	}
}

func (p *probe) raceAbsent(ctx context.Context) error {
	return p.race(ctx, "if-absent", "", IfAbsent())
}

func (p *probe) raceMatch(ctx context.Context) error {
	o, err := p.store.Get(ctx, p.key+"-race")
	if errors.Is(err, ErrNotFound) {
		// No racer succeeded: create the object now.
		o.Body = p.body("made")
		o.ETag, err = p.wanted(ctx, "if-absent on an absent object is refused", p.key+"-race", "made", IfAbsent())
	}
	if err != nil {
		return err
	}
	return p.race(ctx, "if-match of one etag", string(o.Body), IfMatch(o.ETag))
}

// race sends concurrent writes of one key with the same precondition, and judges the results. It
// retries while the store asks to retry all of them later.
func (p *probe) race(ctx context.Context, what, before string, pre Precondition) error {
	key := p.key + "-race"
	errs := make([]error, probeWriters)
	bodies := make([]string, probeWriters)
	for w := range bodies {
		bodies[w] = string(p.body(fmt.Sprintf("%s by writer %d", what, w)))
	}
	for n := 1; ; n++ {
		var work sync.WaitGroup
		for w := range errs {
			work.Go(func() { _, errs[w] = p.store.Put(ctx, key, []byte(bodies[w]), pre) })
		}
		work.Wait()
		if slices.ContainsFunc(errs, func(err error) bool { return !putOff(err) }) {
			break
		}
		if retry.Wait(ctx, confirmBackoff().Delay(n)) != nil {
			return errs[0]
		}
	}
	o, err := p.store.Get(ctx, key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return judgeRace(what, before, bodies, errs, string(o.Body))
}

// judgeRace judges concurrent writes with one precondition by their errors, the object before,
// and the object found after all replies.
func judgeRace(what, before string, bodies []string, errs []error, found string) error {
	winner, winners, lost := "", 0, 0
	var refused error
	for w, err := range errs {
		switch {
		case err == nil:
			winner, winners = bodies[w], winners+1
		case errors.Is(err, ErrConflict):
			lost++
		case final(err) && !errors.Is(err, ErrUnknown):
			return err
		case final(err):
			refused = err
		}
	}
	fault := ""
	switch {
	case winners > 1:
		fault = "more than one succeeds"
	case winners == 1 && found != winner:
		fault = "the object is not the winner's"
	case winners == 0 && lost == len(errs) && found == before:
		fault = "none succeeds"
	case winners == 0:
		return refused // nil: the winner's answer was lost, or all were put off
	default:
		return nil
	}
	return lacks(fmt.Sprintf("of %d concurrent writers with %s, %s", len(errs), what, fault))
}

// pageKeys returns the keys of the small listing, in order.
func (p *probe) pageKeys() []string {
	keys := make([]string, 5)
	for n := range keys {
		keys[n] = fmt.Sprintf("%s-page%d", p.key, n)
	}
	return keys
}

// pages lists a few objects in three pages, until all are listed.
func (p *probe) pages(ctx context.Context) (string, error) {
	keys := p.pageKeys()
	etags := make([]ETag, len(keys))
	errs := make([]error, len(keys))
	var work sync.WaitGroup
	for n, key := range keys {
		work.Go(func() { etags[n], errs[n] = PutConfirmed(ctx, p.store, key, p.body(key), IfAbsent()) })
	}
	work.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	written := time.Now()
	for n := 1; ; n++ {
		late := time.Since(written)
		listed, err := All(WithPageSize(ctx, 2), p.store, p.key+"-page")
		if err != nil {
			return "", err
		}
		missing, err := compareListing(keys, etags, listed)
		switch {
		case err != nil:
			return "", err
		case missing == "" && n == 1:
			return "written objects are listed immediately", nil
		case missing == "":
			return fmt.Sprintf("written objects are listed after %s", late.Round(time.Millisecond)), nil
		case late > listPatience:
			return "", &Lack{Kind: ErrUnfit, What: "a listing lacks written objects",
				Detail: fmt.Sprintf("%s is not listed %s after its write", missing, listPatience)}
		}
		if err := retry.Wait(ctx, confirmBackoff().Delay(n)); err != nil {
			return "", fmt.Errorf("%w: %w", ErrUnknown, err)
		}
	}
}

// compareListing returns the first key that a listing lacks.
func compareListing(keys []string, etags []ETag, listed []Info) (missing string, err error) {
	found := map[string]ETag{}
	for _, o := range listed {
		found[o.Key] = o.ETag
	}
	for n, key := range keys {
		switch etag, ok := found[key]; {
		case !ok && missing == "":
			missing = key
		case ok && etag != etags[n]:
			return "", &Lack{Kind: ErrUnfit, What: "a listing shows a wrong ETag", Detail: fmt.Sprintf("%q, not %q", etag, etags[n])}
		}
	}
	return missing, nil
}
