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

func (w *World) lags() bool { return w.cfg.Lag.Max > 0 }

// note keeps what a machine is from now on, and forgets what no read shows any
// more.
func (w *World) note(r *row) {
	if !w.lags() {
		return
	}
	now := time.Now()
	r.past = append(r.past, version{at: now, vm: r.snapshot(), gone: r.gone})
	oldest := now.Add(-w.cfg.Lag.Max)
	for len(r.past) > 1 && !r.past[1].at.After(oldest) {
		r.past = r.past[1:]
	}
}

// show is what a read answers about machines. ref is what it asked for; zero: all.
func (w *World) show(rows []*row, ref provider.Ref) []provider.VM {
	shown := make([]provider.VM, 0, len(rows))
	if !w.lags() {
		for _, r := range rows {
			shown = append(shown, r.snapshot())
		}
		return shown
	}
	draw, now := w.dice.draw("lag", ref), time.Now()
	for _, r := range rows {
		if vm, ok := r.asOf(now.Add(-w.cfg.Lag.draw(draw))); ok {
			shown = append(shown, vm)
		}
	}
	return shown
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
