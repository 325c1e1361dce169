package delivery

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
)

// session is what is known of an instance that has a stream open. Delivery.mu
// guards it.
type session struct {
	group     fleet.GroupKey
	working   bool // a goroutine does what there is to do
	again     bool // there may be more since it looked
	allowance allowance

	keys      *Stream[[]KeyRequest]
	asked     []KeyRequest // sent on that stream
	formerly  []KeyRequest // sent before asked
	askedOf   string       // the runtime hash of the group when asked was made; empty: it was not
	submitted map[string]pki.LeafKey
	sums      map[string]Sum // of submitted

	files  *Stream[Push]
	report *FileReport // the last one; nil: none yet

	want     *Set // nil: not rendered
	version  version
	rendered time.Time
	issued   map[string]Issued

	push     *push // that is not confirmed
	lastPush Sum   // of the last set that was pushed
	failures int   // in a row, of making or of delivering
	retryAt  time.Time
	// unsettled: the group's problem, if it had one, may be over as soon as all is in
	// order here.
	unsettled bool
}

// version is what a set was rendered from.
type version struct {
	hashes     fleet.Hashes
	rev        uint64 // of the record
	generation uint64
}

// push is a set that was sent.
type push struct {
	sending bool
	at      time.Time // when it was sent
	hash    string
	sent    map[string]Issued // every file that was sent; Request is of certificates
}

// lostAfter is how old a push must be for a report that does not speak of it to
// say that it was lost. An agent reports as soon as it has taken a set over.
const lostAfter = 5 * time.Second

// deliveryBackoff is the pause after deliveries that failed in a row.
func deliveryBackoff() retry.Backoff {
	return retry.Backoff{First: 5 * time.Second, Limit: 10 * time.Minute}
}

// hear takes a report, and settles with it what became of the last push: it
// returns a file that the agent could not take over.
func (s *session) hear(r *FileReport, now time.Time) (failed *FileStatus) {
	s.report = r
	p := s.push
	if p == nil {
		return nil
	}
	if p.confirmed(r) {
		s.remember(p)
		s.push, s.retryAt, s.unsettled = nil, time.Time{}, true
		return nil
	}
	if p.sending {
		return nil // it was on its way when the agent wrote this
	}
	failed = r.failed()
	lost := failed == nil && now.Sub(p.at) >= lostAfter
	if failed != nil || lost {
		s.push = nil
		s.fail(now)
	}
	if lost && s.failures == 1 {
		s.retryAt = time.Time{} // streams do break
	}
	return failed
}

// remember keeps what certificates the instance now has.
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

// confirmed reports whether a report shows that the set was taken over.
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

// fail puts the next attempt off.
func (s *session) fail(now time.Time) {
	s.failures++
	s.unsettled = true
	s.retryAt = now.Add(deliveryBackoff().Delay(s.failures))
}

// renderedFrom reports whether want is what v asks for.
func (s *session) renderedFrom(v version, now time.Time) bool {
	return s.want != nil && s.version == v && (len(s.want.Files) == 0 || now.Sub(s.rendered) < renderMaxLife)
}

// calm reports whether there is certainly nothing to do. end is that of the CA.
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
	d := Judge(s.want, s.report, s.known(end), now)
	return !d.Push && len(d.Adopt) == 0 && !s.unsettled
}

// known is what Judge needs. end is that of the CA.
func (s *session) known(end time.Time) Known {
	return Known{Keys: s.sums, Issued: s.issued, CAEnd: end}
}

// allowance bounds how often the same set is pushed to an instance, whatever its
// agent says: a certificate in it costs a signature and a request to the store.
type allowance struct {
	left float64
	at   time.Time
}

const (
	allowanceMost   = 5
	allowanceRefill = 20 * time.Second // for one more
)

func (a allowance) now(now time.Time) allowance {
	if a.at.IsZero() {
		return allowance{left: a.left, at: now}
	}
	gained := max(0, now.Sub(a.at).Seconds()/allowanceRefill.Seconds())
	return allowance{left: min(allowanceMost, a.left+gained), at: now}
}

func (a allowance) full(now time.Time) bool { return a.now(now).left >= allowanceMost }

// take uses one up, if one is left.
func (a *allowance) take(now time.Time) bool {
	*a = a.now(now)
	if a.left < 1 {
		return false
	}
	a.left--
	return true
}
