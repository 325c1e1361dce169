package fake

import (
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// This file implements stale reads. All methods require the lock.

// version is a machine's state from some time on.
type version struct {
	at   time.Time
	vm   provider.VM
	gone bool
}

// note records a machine's new state for reads with at most this lag, and drops states no read
// can show.
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

// asOf returns the machine as of t, and whether it existed.
func (r *row) asOf(t time.Time) (provider.VM, bool) {
	for _, v := range slices.Backward(r.past) {
		if !v.at.After(t) {
			then := row{vm: v.vm}
			return then.snapshot(), !v.gone
		}
	}
	return provider.VM{}, false
}

// show returns what a read for ref shows; zero: all.
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
