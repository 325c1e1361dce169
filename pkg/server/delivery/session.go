package delivery

import (
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
)

// session is the state of an instance with an open stream. Guarded by Delivery.mu.
type session struct {
	group     fleet.GroupKey
	working   bool // a goroutine runs work
	again     bool // something changed since it last read the state
	allowance allowance

	keys      *Stream[[]KeyRequest]
	asked     []KeyRequest // sent on that stream
	formerly  []KeyRequest // requested before asked
	askedOf   string       // the group's runtime hash when asked was set; empty: not set
	submitted map[string]pki.LeafKey
	sums      map[string]Sum // of submitted

	files  *Stream[Push]
	report *FileReport // the last report, or nil

	want     *Set // nil if not rendered
	last     *Set // the last one that was rendered; nil: none was
	version  version
	rendered time.Time
	issued   map[string]Issued
	inPlace  *Set // the set that the last report shows; nil: none, or not known

	push     *push // not confirmed yet
	lastPush Sum   // id of the last set that was pushed
	failures int   // consecutive failures to render or deliver
	// trouble is why the last attempt failed, if there are failures.
	trouble    string
	troubledAt time.Time
	retryAt    time.Time
	// unsettled: the group's problem, if any, may be over once this instance is up to date.
	unsettled bool
}

// version identifies the inputs of a rendering.
type version struct {
	hashes     fleet.Hashes
	rev        uint64 // of the record
	generation uint64
}

// push is a set that was sent, or is being sent.
type push struct {
	sending bool
	at      time.Time // when it was sent
	hash    string
	sent    map[string]Issued // every file that was sent; Request is set for certificates
	end     func(error)       // ends its span
}

// lostAfter is the age from which a push counts as lost if a report does not show it. An agent
// reports as soon as it has applied a set.
const lostAfter = 5 * time.Second

// deliveryBackoff is the back-off after consecutive failed deliveries.
func deliveryBackoff() retry.Backoff {
	return retry.Backoff{First: 5 * time.Second, Limit: 10 * time.Minute}
}

// hear stores a report and resolves the last push with it. It returns a file that the agent
// failed to write, or nil.
func (s *session) hear(r *FileReport, now time.Time) (failed *FileStatus) {
	s.report = r
	p := s.push
	if p == nil {
		return nil
	}
	if p.confirmed(r) {
		s.remember(p)
		s.over(nil)
		s.retryAt, s.unsettled = time.Time{}, true
		return nil
	}
	if p.sending {
		return nil // the report was written before the push arrived
	}
	failed = r.failed()
	lost := failed == nil && now.Sub(p.at) >= lostAfter
	switch {
	case failed != nil:
		s.over(errors.New(unwritten(failed)))
		s.fail(unwritten(failed), now)
	case lost:
		s.over(errUnconfirmed)
		why := "" // the first is usually due to a stream that broke
		if s.failures > 0 {
			why = fmt.Sprintf("files: the agent did not confirm them within %v", lostAfter)
		}
		s.fail(why, now)
	}
	if lost && s.failures == 1 {
		s.retryAt = time.Time{} // a lost push is retried at once, since streams break
	}
	return failed
}

var errUnconfirmed = fmt.Errorf("the agent did not confirm the files within %v", lostAfter)

// over ends the push, if there is one.
func (s *session) over(err error) {
	if s.push != nil {
		s.push.end(err)
		s.push = nil
	}
}

// remember records the certificates that the instance now has.
func (s *session) remember(p *push) {
	for name, is := range p.sent {
		if is.Request != (Sum{}) {
			s.hold(name, is)
		}
	}
}

func (s *session) hold(name string, is Issued) {
	if s.issued == nil {
		s.issued = map[string]Issued{}
	}
	s.issued[name] = is
}

// confirmed reports whether a report shows that the set was applied.
func (p *push) confirmed(r *FileReport) bool {
	if r.ConfigHash != p.hash {
		return false
	}
	for name, is := range p.sent {
		if st := r.file(name); st.State != Present || st.SHA256 != is.Content {
			return false
		}
	}
	return true
}

// fail schedules the next attempt after one that failed, for a reason unless that is empty.
func (s *session) fail(why string, now time.Time) {
	s.failures++
	s.trouble, s.troubledAt = fmt.Sprintf("%.600s", why), now
	s.unsettled = true
	s.retryAt = now.Add(deliveryBackoff().Delay(s.failures))
}

// renderedFrom reports whether want was rendered from v and is recent enough.
func (s *session) renderedFrom(v version, now time.Time) bool {
	return s.want != nil && s.version == v && (len(s.want.Files) == 0 || now.Sub(s.rendered) < renderMaxLife)
}

// calm reports whether there is certainly nothing to do. end is the CA's expiry.
func (s *session) calm(v version, end, now time.Time) bool {
	if s.keys != nil && s.askedOf != v.hashes.Runtime {
		return false
	}
	if s.report == nil || s.files == nil {
		return true
	}
	if s.version == v && now.Before(s.retryAt) {
		return true
	}
	if !s.renderedFrom(v, now) {
		return false
	}
	if s.push != nil {
		return true
	}
	d := s.judge(s.want, end, now)
	return !d.Push && len(d.Adopt) == 0 && !s.unsettled
}

// judge compares the last report with a set, and notes whether it shows all of it.
func (s *session) judge(want *Set, end, now time.Time) Decision {
	d := Judge(want, s.report, s.known(end), now)
	if s.inPlace = want; d.Push || len(d.Await) > 0 {
		s.inPlace = nil
	}
	return d
}

// known returns the input of Judge. end is the CA's expiry.
func (s *session) known(end time.Time) Known {
	return Known{Keys: s.sums, Issued: s.issued, CAEnd: end}
}

// allowance limits how often the same set is pushed to an instance, whatever its agent
// reports: a certificate in it costs a signature and a request to the store.
type allowance struct {
	left float64
	at   time.Time
}

const (
	allowanceMost   = 5
	allowanceRefill = 20 * time.Second // per additional push
)

func (a allowance) now(now time.Time) allowance {
	if a.at.IsZero() {
		return allowance{left: a.left, at: now}
	}
	gained := max(0, now.Sub(a.at).Seconds()/allowanceRefill.Seconds())
	return allowance{left: min(allowanceMost, a.left+gained), at: now}
}

func (a allowance) full(now time.Time) bool { return a.now(now).left >= allowanceMost }

// take uses one push, and reports false if none is left.
func (a *allowance) take(now time.Time) bool {
	*a = a.now(now)
	if a.left < 1 {
		return false
	}
	a.left--
	return true
}
