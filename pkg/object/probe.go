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
	probeCleanup = 5 * time.Second  // for cleaning up
	probeCheck   = 30 * time.Second // for one check
	probeRetries = 5                // of a request without a definite result
	probeWriters = 8                // concurrent
	listPatience = 5 * time.Second  // until a listing shows written objects
)

// Results of a check.
const (
	ResultOK         = "ok"
	ResultMissing    = "missing"     // the store lacks a required property
	ResultFailed     = "failed"      // the check could not be completed
	ResultNotChecked = "not checked" // skipped after a missing or failed one
)

// Finding is the result of one check of a store.
type Finding struct {
	Check   string `json:"check"`
	Result  string `json:"result"`
	Meaning string `json:"meaning"`          // what the property is needed for
	Detail  string `json:"detail,omitempty"` // a measurement, or why it is not ok
	Err     error  `json:"-"`
}

// Probe checks on a live store that it has the properties that Nstance needs, as Examine does.
// It returns the first failure: ErrUnfit, which names the property, or another error, which
// may be temporary and is worth a retry, unless it is ErrRefused.
func Probe(ctx context.Context, s Store, id string) error {
	for _, f := range Examine(ctx, s, id) {
		if f.Err != nil {
			return fmt.Errorf("probe object storage: %w", f.Err)
		}
	}
	return nil
}

// Examine runs the checks on a live store, up to the first failure. It sends a few dozen
// requests, writes below probe/, and deletes what it wrote. id must be unique to the run, so
// that any number of servers may probe concurrently, and leftovers of a crashed run affect no
// other.
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
		{"read", "the bucket exists and is readable", plain(p.unused)},
		{"make if absent", "one server creates a record and can read it immediately", plain(p.create)},
		{"refuse a second make", "two servers never both create it", plain(p.createAgain)},
		{"replace if unchanged", "a record changes, and its ETag with it", plain(p.replace)},
		{"refuse a stale replace", "no change is lost", plain(p.replaceStale)},
		{"refuse to replace what is absent", "a deleted record does not reappear", plain(p.replaceAbsent)},
		{"eight makes at once", "one leader, however many servers try", plain(p.raceAbsent)},
		{"eight replaces at once", "no change is lost under load", plain(p.raceMatch)},
		{"delete", "obsolete records can be removed", plain(p.remove)},
		{"make again after a delete", "a leader can be elected after its record was removed", plain(p.makeAgain)},
		{"list in pages", "all instances are found, in order and once", p.pages},
	}
}

func (p *probe) body(rev string) []byte { return []byte("probe " + p.id + " " + rev) }

// unused refuses a reused ID, so that a run never deletes another run's objects.
func (p *probe) unused(ctx context.Context) error {
	if err := CheckKey(p.key); err != nil {
		return err
	}
	switch _, err := p.store.Get(ctx, p.key); {
	case err == nil:
		return fmt.Errorf("%s exists already: the id must be unique to the run", p.key)
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
	return &Lack{Kind: ErrUnfit, What: "an object still exists after its deletion"}
}

// lacks returns the error of a store that does not honour conditional writes.
func lacks(what string) error { return &Lack{Kind: ErrNoConditionalWrites, What: what} }

// wanted writes with a precondition that holds, and reads the object back.
func (p *probe) wanted(ctx context.Context, complaint, key, rev string, pre Precondition) (ETag, error) {
	etag, err := PutConfirmed(ctx, p.store, key, p.body(rev), pre)
	switch {
	case errors.Is(err, ErrConflict):
		return "", lacks(complaint)
	case err != nil:
		return "", err
	}
	return etag, p.unchanged(ctx, "a successful write is not readable", key, etag, rev)
}

// unwanted writes with a precondition that does not hold. The write must be refused and leave
// the object unchanged. It is retried while its outcome is unknown: it must never land.
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
				return lacks("a failed precondition returns 409, not 412")
			}
			return err
		}
		if retry.Wait(ctx, confirmBackoff().Delay(n)) != nil {
			return err
		}
	}
}

// HTTP statuses, with their meaning in S3.
const (
	statusConflict = 409 // the precondition was not evaluated
	statusTooMany  = 429 // retry later
	statusSlowDown = 503 // retry later
)

// answered reports whether a request failed with this status.
func answered(err error, status int) bool {
	var answer *Answer
	return errors.As(err, &answer) && answer.Status == status
}

// putOff reports whether the store asks to retry later: some accept one write of a key a second.
// That is not a failed attempt.
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

// clean deletes the probe's objects, even if ctx has ended: a unique key is never written again.
// Leftovers are harmless.
func (p *probe) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanup)
	defer cancel()
	var work sync.WaitGroup
	for _, key := range append(p.pageKeys(), p.key, p.key+"-absent", p.key+"-race") {
		work.Go(func() { _ = p.store.Delete(ctx, key) })
	}
	work.Wait()
}
