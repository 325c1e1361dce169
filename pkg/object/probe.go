package object

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// Bounds of a probe.
const (
	probeCleanup = 5 * time.Second  // for the deletion of what it wrote
	probeCheck   = 30 * time.Second // for one check
	probeRetries = 5                // of a request that was not judged
	probeWriters = 8                // at once
	listPatience = 5 * time.Second  // until a listing shows what was written
)

// Results of a check.
const (
	ResultOK         = "ok"
	ResultMissing    = "missing"     // the store lacks what Nstance can't do without
	ResultFailed     = "failed"      // the store could not be asked
	ResultNotChecked = "not checked" // after one that is missing or failed
)

// Finding is what one check of a store found.
type Finding struct {
	Check   string `json:"check"`
	Result  string `json:"result"`
	Meaning string `json:"meaning"`          // what the property is needed for
	Detail  string `json:"detail,omitempty"` // a fact, or why it is not ok
	Err     error  `json:"-"`
}

// Probe proves on a live store what Nstance does with one, as Examine does. It returns
// the first failure: ErrUnfit, which names the property, or why the store could not be
// asked; the latter may pass and is worth a retry, unless it is ErrRefused.
func Probe(ctx context.Context, s Store, id string) error {
	for _, f := range Examine(ctx, s, id) {
		if f.Err != nil {
			return fmt.Errorf("probe object storage: %w", f.Err)
		}
	}
	return nil
}

// Examine checks a live store: what holds, up to the first check that does not. It
// writes below probe/, a few dozen requests, and deletes what it wrote; id is unique to
// the run, so that any number of servers may probe at once, and what one that crashed
// left behind disturbs no other.
func Examine(ctx context.Context, s Store, id string) []Finding {
	p := &probe{store: s, id: id, key: "probe/" + id}
	var out []Finding
	var failed bool
	for _, c := range p.checks() {
		f := Finding{Check: c.name, Result: ResultNotChecked, Meaning: c.meaning}
		if !failed {
			f = p.check(ctx, f, c.do)
			failed = f.Err != nil
		}
		out = append(out, f)
	}
	if p.wrote {
		p.clean(ctx)
	}
	return out
}

func (p *probe) check(ctx context.Context, f Finding, do func(context.Context) (string, error)) Finding {
	ctx, cancel := context.WithTimeout(ctx, probeCheck)
	defer cancel()
	f.Detail, f.Err = do(ctx)
	switch {
	case f.Err == nil:
		f.Result = ResultOK
	case errors.Is(f.Err, ErrUnfit):
		f.Result, f.Detail = ResultMissing, f.Err.Error()
	default:
		f.Result, f.Detail = ResultFailed, f.Err.Error()
	}
	return f
}

type probe struct {
	store         Store
	id, key       string
	first, second ETag
	wrote         bool
}

// check is one property, and what it is needed for.
type check struct {
	name, meaning string
	do            func(context.Context) (string, error)
}

func (p *probe) checks() []check {
	plain := func(do func(context.Context) error) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) { return "", do(ctx) }
	}
	return []check{
		{"read", "the bucket is there and may be read", plain(p.unused)},
		{"make if absent", "one server makes a record, and reads it at once", plain(p.create)},
		{"refuse a second make", "two servers never both make it", plain(p.createAgain)},
		{"replace if unchanged", "a record changes, and its ETag with it", plain(p.replace)},
		{"refuse a stale replace", "no change is lost", plain(p.replaceStale)},
		{"refuse to replace what is absent", "what was deleted does not come back", plain(p.replaceAbsent)},
		{"eight makes at once", "one leader, however many servers try", plain(p.raceAbsent)},
		{"eight replaces at once", "no change is lost under load", plain(p.raceMatch)},
		{"delete", "what is over goes", plain(p.remove)},
		{"make again after a delete", "a leader can be elected after its record was removed", plain(p.makeAgain)},
		{"list in pages", "all instances are found, in order and once", p.pages},
	}
}

func (p *probe) body(rev string) []byte { return []byte("probe " + p.id + " " + rev) }

// unused keeps an id given twice from deleting what the other run wrote.
func (p *probe) unused(ctx context.Context) error {
	if err := CheckKey(p.key); err != nil {
		return err
	}
	switch _, err := p.store.Get(ctx, p.key); {
	case err == nil:
		return fmt.Errorf("%s is there already: the id must be unique to the run", p.key)
	case !errors.Is(err, ErrNotFound):
		return err
	}
	p.wrote = true
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
		return lacks("a write does not change the ETag")
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
	return &Lack{Kind: ErrUnfit, What: "an object is still there after its deletion"}
}

// lacks is the error of a store that does not honour conditional writes.
func lacks(what string) error { return &Lack{Kind: ErrNoConditionalWrites, What: what} }

// wanted makes a write whose precondition holds, and reads it back.
func (p *probe) wanted(ctx context.Context, complaint, key, rev string, pre Precondition) (ETag, error) {
	etag, err := Settle(ctx, p.store, key, p.body(rev), pre)
	switch {
	case errors.Is(err, ErrConflict):
		return "", lacks(complaint)
	case err != nil:
		return "", err
	}
	return etag, p.unchanged(ctx, "a write that was answered with success is not there", key, etag, rev)
}

// unwanted makes a write whose precondition does not hold. It must be refused and
// leave the object as it was. It is sent again while its outcome is unknown: however
// often, it must not land.
func (p *probe) unwanted(ctx context.Context, what, key string, pre Precondition, etag ETag, rev string) error {
	for n := 1; ; n++ {
		_, err := p.store.Put(ctx, key, p.body("unwanted"), pre)
		switch {
		case err == nil:
			return lacks(what + " overwrites")
		case errors.Is(err, ErrConflict):
			return p.unchanged(ctx, what+" is refused but changes the object", key, etag, rev)
		case final(err) || !errors.Is(err, ErrUnknown):
			return err
		case n >= probeRetries && !putOff(err):
			if answered(err, statusConflict) {
				return lacks("a precondition that fails is answered 409, not 412")
			}
			return err
		}
		if retry.Wait(ctx, settleBackoff().Delay(n)) != nil {
			return err
		}
	}
}

// Statuses of HTTP, and what S3 means by them.
const (
	statusConflict = 409 // it did not judge the precondition
	statusTooMany  = 429 // the request is put off
	statusSlowDown = 503 // so it is
)

// answered reports whether a request failed with this status.
func answered(err error, status int) bool {
	var answer *Answer
	return errors.As(err, &answer) && answer.Status == status
}

// putOff reports whether the store asks for the same request later: some take one write of
// a key a second. That is no failed attempt.
func putOff(err error) bool { return answered(err, statusTooMany) || answered(err, statusSlowDown) }

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
		return lacks(complaint)
	}
	return nil
}

// clean deletes whatever the probe left, even when ctx has ended: a unique key is never
// written again. What it can't delete is harmless.
func (p *probe) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanup)
	defer cancel()
	var work sync.WaitGroup
	for _, key := range append(p.pageKeys(), p.key, p.key+"-absent", p.key+"-race") {
		work.Go(func() { _ = p.store.Delete(ctx, key) })
	}
	work.Wait()
}
