package reconcile

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// Tuning is the part of a Config that can change while the loop runs.
type Tuning struct {
	CreateRate     CreateRate
	RequestTimeout time.Duration // of each call to the provider that begins from now on
	SweepInterval  time.Duration // counts from the end of the last sweep
}

func (c Config) tuning() Tuning {
	return Tuning{CreateRate: c.CreateRate, RequestTimeout: c.RequestTimeout, SweepInterval: c.SweepInterval}
}

func (t Tuning) check() error {
	var errs []error
	need := func(ok bool, field, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("reconcile: %s: want %s", field, want))
		}
	}
	need(t.CreateRate.PerSecond >= 0, "CreateRate.PerSecond", "0 or more")
	need(t.CreateRate.PerSecond == 0 || t.CreateRate.Burst >= 1, "CreateRate.Burst", "at least 1")
	need(t.CreateRate.Concurrency >= 1, "CreateRate.Concurrency", "at least 1")
	need(t.RequestTimeout > 0, "RequestTimeout", "more than 0")
	need(t.SweepInterval > 0, "SweepInterval", "more than 0")
	return errors.Join(errs...)
}

func (r CreateRate) limit() rate.Limit {
	if r.PerSecond > 0 {
		return rate.Limit(r.PerSecond)
	}
	return rate.Inf
}

// Reconfigure goes over to another tuning and, by swap, to another wanted state.
// swap runs between two passes, so that no decision sees half of it; it must be
// quick and must not call the loop. What was decided and has not begun is decided
// anew, for every group. Creates and deletes under way are not touched: where
// fewer are allowed at one time, the next begins when enough have ended. A tuning
// that is not valid is refused, and swap does not run.
func (l *Loop) Reconfigure(t Tuning, swap func()) error {
	if err := t.check(); err != nil {
		return err
	}
	l.passing.Lock()
	defer l.passing.Unlock()
	swap()
	l.tuning.Store(&t)
	l.launcher.retune(t.CreateRate)
	l.cloud.deletes.resize(t.CreateRate.Concurrency)
	select {
	case l.sweeper.retuned <- struct{}{}:
	default: // it is about to look
	}
	l.markAll()
	l.schedule.signal()
	return nil
}
