package fake

import (
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// This file is what reads show in a world whose reads lag: each machine as it was
// some time ago. All methods hold the lock.

// version is what a machine was from some moment on.
type version struct {
	at   time.Time
	vm   provider.VM
	gone bool
}

// note keeps what a machine is from now on, for reads that lag by so much at most, and
// forgets what no read shows any more.
func (r *row) note(lag time.Duration) {
	if lag <= 0 {
		return
	}
	now := time.Now()
	r.past = append(r.past, version{at: now, vm: r.snapshot(), gone: r.gone})
	oldest := now.Add(-lag)
	for len(r.past) > 1 && !r.past[1].at.After(oldest) {
		r.past = r.past[1:]
	}
}

// asOf is the machine as it was at t, and whether it was there.
func (r *row) asOf(t time.Time) (provider.VM, bool) {
	for _, v := range slices.Backward(r.past) {
		if !v.at.After(t) {
			then := row{vm: v.vm}
			return then.snapshot(), !v.gone
		}
	}
	return provider.VM{}, false
}

// show is what a read answers about machines. ref is what it asked for; zero: all.
func (p *Provider) show(rows []*row, ref provider.Ref) []provider.VM {
	shown := make([]provider.VM, 0, len(rows))
	if p.ConsistentReads() {
		for _, r := range rows {
			shown = append(shown, r.snapshot())
		}
		return shown
	}
	draw, now := p.w.dice.draw("lag", ref), time.Now()
	for _, r := range rows {
		if vm, ok := r.asOf(now.Add(-p.w.cfg.Lag.draw(draw))); ok {
			shown = append(shown, vm)
		}
	}
	return shown
}
