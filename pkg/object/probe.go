package object

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// probeCleanup bounds the deletion of what a probe wrote.
const probeCleanup = 5 * time.Second

// Probe proves on a live store that if-absent and if-match are honoured: a
// precondition that holds lets the write through, one that does not is answered
// with ErrConflict and changes nothing, and every write changes the etag. It
// writes under probe/{id} and deletes what it wrote; id is unique to the run, so
// that any number of servers may probe at once.
//
// The error wraps ErrNoConditionalWrites and names what is not honoured, or says
// why the store could not be probed; the latter may pass and is worth a retry.
func Probe(ctx context.Context, s Store, id string) error {
	p := probe{store: s, id: id, key: "probe/" + id}
	if err := CheckKey(p.key); err != nil {
		return fmt.Errorf("probe object storage: %w", err)
	}
	if err := p.unused(ctx); err != nil {
		return fmt.Errorf("probe object storage: %w", err)
	}
	defer p.clean(ctx)
	for _, step := range []func(context.Context) error{p.create, p.createAgain, p.replace, p.replaceStale, p.replaceAbsent, p.remove} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("probe object storage: %w", err)
		}
	}
	return nil
}

type probe struct {
	store         Store
	id, key       string
	first, second ETag
}

func (p *probe) body(rev string) []byte { return []byte("probe " + p.id + " " + rev) }

// unused keeps an id given twice from deleting what the other run wrote.
func (p *probe) unused(ctx context.Context) error {
	switch _, err := p.store.Get(ctx, p.key); {
	case err == nil:
		return fmt.Errorf("%s is there already: the id must be unique to the run", p.key)
	case !errors.Is(err, ErrNotFound):
		return err
	}
	return nil
}

func (p *probe) create(ctx context.Context) (err error) {
	p.first, err = p.wanted(ctx, "if-absent on an absent object is refused", p.key, "created", IfAbsent())
	return err
}

func (p *probe) createAgain(ctx context.Context) error {
	return p.unwanted(ctx, "if-absent on a present object", p.key, IfAbsent(), p.first, "created")
}

func (p *probe) replace(ctx context.Context) error {
	var err error
	p.second, err = p.wanted(ctx, "if-match of the current etag is refused", p.key, "replaced", IfMatch(p.first))
	if err == nil && p.second == p.first {
		return fmt.Errorf("%w: a write did not change the etag %q", ErrNoConditionalWrites, p.first)
	}
	return err
}

func (p *probe) replaceStale(ctx context.Context) error {
	return p.unwanted(ctx, "if-match of an outdated etag", p.key, IfMatch(p.first), p.second, "replaced")
}

func (p *probe) replaceAbsent(ctx context.Context) error {
	return p.unwanted(ctx, "if-match on an absent object", p.key+"-absent", IfMatch(p.first), "", "")
}

func (p *probe) remove(ctx context.Context) error {
	if err := p.store.Delete(ctx, p.key); err != nil {
		return err
	}
	switch _, err := p.store.Get(ctx, p.key); {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s is still there after its deletion", p.key)
}

// wanted makes a write whose precondition holds, and reads it back.
func (p *probe) wanted(ctx context.Context, complaint, key, rev string, pre Precondition) (ETag, error) {
	etag, err := Settle(ctx, p.store, key, p.body(rev), pre)
	switch {
	case errors.Is(err, ErrConflict):
		return "", fmt.Errorf("%w: %s", ErrNoConditionalWrites, complaint)
	case err != nil:
		return "", err
	}
	return etag, p.unchanged(ctx, "a write that was answered with success is not there", key, etag, rev)
}

// unwanted makes a write whose precondition does not hold. It must be refused and
// leave the object as it was.
func (p *probe) unwanted(ctx context.Context, what, key string, pre Precondition, etag ETag, rev string) error {
	_, err := p.store.Put(ctx, key, p.body("unwanted"), pre)
	switch {
	case err == nil:
		return fmt.Errorf("%w: %s overwrites", ErrNoConditionalWrites, what)
	case !errors.Is(err, ErrConflict):
		return err
	}
	return p.unchanged(ctx, what+" is refused but changes the object", key, etag, rev)
}

func (p *probe) unchanged(ctx context.Context, complaint, key string, etag ETag, rev string) error {
	o, err := p.store.Get(ctx, key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	var body []byte
	if etag != "" {
		body = p.body(rev)
	}
	if o.ETag != etag || string(o.Body) != string(body) {
		return fmt.Errorf("%w: %s", ErrNoConditionalWrites, complaint)
	}
	return nil
}

// clean deletes whatever a failed probe left, even when ctx has ended: a unique
// key is never written again. What it can't delete is harmless.
func (p *probe) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanup)
	defer cancel()
	for _, key := range []string{p.key, p.key + "-absent"} {
		_ = p.store.Delete(ctx, key)
	}
}
