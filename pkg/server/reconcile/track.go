package reconcile

import (
	"net/netip"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// track is what the loop knows of one instance beyond its record. Loop.mu
// guards it.
type track struct {
	pace
	health plan.Health

	vm    plan.VM
	state provider.State // the provider's own word; empty: none yet
	asOf  time.Time      // when the question was asked that vm answers
	seen  bool           // a Get, a List or an event showed the VM, so a later not-found is believed

	addresses []netip.Addr // that the provider last showed; never changed in place

	attemptedAt time.Time // this term's last create
	// recordDoubtful: the outcome of a write is not known that was made while the
	// instance was created, or to end it before it was.
	recordDoubtful bool
	retryAt        time.Time // when the create or delete is due again
	asks           int       // status questions since what gave rise to them
	loss           *loss
}

// pace keeps the steps taken on one thing apart: one at a time, and more and
// more rarely while they fail.
type pace struct {
	busy       bool      // a worker is on it
	quietUntil time.Time // after a failed step: as good as busy until then
	told       string    // the last step's failure
	failures   int       // steps that failed since the last one that did not
}

// isBusy reports whether no new step may begin now.
func (p *pace) isBusy(now time.Time) bool { return p.busy || p.quietUntil.After(now) }

// done ends a step.
func (p *pace) done(err error, now time.Time) {
	p.busy = false
	if err == nil {
		p.failures, p.quietUntil = 0, time.Time{}
		return
	}
	p.failures++
	p.quietUntil = now.Add(stepBackoff().Delay(p.failures))
}

// failedAgain reports whether a step failed just as the last one did.
func (p *pace) failedAgain(err error) bool {
	last := p.told
	p.told = ""
	if err != nil {
		p.told = err.Error()
	}
	return err != nil && p.told == last
}

// loss is how an instance was lost, for the account of its replacement.
type loss struct {
	sign     string
	at       time.Time // the first sign: the stream broke, the agent or the provider said so
	statusAt time.Time // when the provider answered; zero: it was not asked, or not yet
	awaited  bool      // the last pass wanted a replacement, which waits to begin
	replaced bool      // a replacement has begun
}

// The signs of a loss.
const (
	signDisconnect = "disconnect"
	signShutdown   = "shutdown"
	signNotice     = "notice"
	signProvider   = "provider"
)

// track returns what is known of an instance, making room for it.
func (l *Loop) track(id fleet.InstanceID) *track {
	t, ok := l.tracks[id]
	if !ok {
		t = &track{}
		l.tracks[id] = t
	}
	return t
}

// doubtful reports whether the agent is missing or leaving, so that the
// provider's word is asked for.
func (t *track) doubtful() bool {
	return !t.health.Connected || !t.health.ShuttingDownAt.IsZero()
}

// lose remembers the first sign of a loss. Who is leaving anyway is none.
func (t *track) lose(sign string, at time.Time, r fleet.Instance) {
	if t.loss == nil && r.Phase.Active() {
		t.loss = &loss{sign: sign, at: at}
	}
}

// lost reports whether the instance is lost for certain and its replacement is
// still to begin.
func (t *track) lost() bool {
	return t.loss != nil && !t.loss.replaced &&
		(dead(t.vm) || t.health.Notice != nil || !t.health.ShuttingDownAt.IsZero())
}
