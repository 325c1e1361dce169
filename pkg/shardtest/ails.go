package shardtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/provider"
)

// ails are faults of one server's requests, whatever process runs there. Safe for
// concurrent use.
type ails struct {
	mu   sync.Mutex
	list bool          // lists fail
	page time.Duration // delay between pages of lists; 0: none
	put  time.Duration // delay of the answer to a write
}

func (a *ails) set(do func(*ails)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do(a)
}

func (a *ails) look() (list bool, page, put time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.list, a.page, a.put
}

// heal ends all faults.
func (a *ails) heal() { a.set(func(a *ails) { a.list, a.page, a.put = false, 0, 0 }) }

// errNoList is the error of lists that fail.
var errNoList = errors.New("connect to the provider: no route to host")

// pages is the number of pages of a paged list.
const pages = 3

// listed returns the provider's list with this server's faults applied.
func (a *ails) listed(ctx context.Context, list func() ([]provider.VM, error)) ([]provider.VM, error) {
	fails, page, _ := a.look()
	if fails {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
		return nil, errNoList
	}
	for n := 0; page > 0 && n < pages; n++ {
		if err := pause(ctx, page); err != nil {
			return nil, err
		}
		provider.Listed(ctx)
	}
	return list()
}

// written delays the outcome of a write, or loses it.
func (a *ails) written(ctx context.Context, put func() (object.ETag, error)) (object.ETag, error) {
	tag, err := put()
	if _, _, late := a.look(); late > 0 {
		if over := pause(ctx, late); over != nil {
			return "", over
		}
	}
	return tag, err
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func doListsFail(s *Shard, a args) error {
	return s.ail(a, func(of *ails) { of.list = true })
}

func doListsCrawl(s *Shard, a args) error {
	return s.ail(a, func(of *ails) { of.page = a.span })
}

func doListsFair(s *Shard, a args) error {
	return s.ail(a, func(of *ails) { of.list, of.page = false, 0 })
}

func doPutsTake(s *Shard, a args) error {
	return s.ail(a, func(of *ails) { of.put = a.span })
}

func (s *Shard) ail(a args, do func(*ails)) error {
	v, err := s.place(a.words[0])
	if err == nil {
		v.ails.set(do)
	}
	return err
}
