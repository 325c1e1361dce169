package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server"
	"github.com/nstance/nstance/pkg/server/leader"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// unlisted is a provider whose listings fail for one server.
type unlisted struct {
	*fake.Provider
	fails *atomic.Bool
}

func (p unlisted) List(ctx context.Context) ([]provider.VM, error) {
	if p.fails.Load() {
		return nil, fmt.Errorf("list: %w", fake.ErrLost)
	}
	return p.Provider.List(ctx)
}

// listsUnless makes the provider list for a server while fails is false.
func (s *site) listsUnless(fails *atomic.Bool) func(*server.Config) {
	return func(c *server.Config) {
		c.OpenProvider = func(o server.Opening) (provider.Provider, error) {
			return unlisted{s.world.Open(o.Scope, c.ID), fails}, nil
		}
	}
}

// says waits until a server's health endpoint returns 200 and a text.
func (p *process) says(text string) {
	p.t.Helper()
	eventually(p.t, "the health endpoint says "+text, func() error {
		if code, body := p.health(); code != 200 || !strings.Contains(body, text) {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}

// TestStuckLeaderGivesUp: the lead passes to a server for which the provider lists, which then
// creates the missing instances.
func TestStuckLeaderGivesUp(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.config[`"fence_window": "100ms"`] = `"fence_window": "100ms", "give_up": "1s"`
		s.putConfig(shardID)
		var here, there atomic.Bool
		here.Store(true)
		a := s.start(s.listsUnless(&here))
		a.await("leading")
		b := s.start(named("b"), s.listsUnless(&there))
		a.says("standing by; gave the lead to another server")
		b.awaitLeading()
		b.says("leading")
		eventually(t, "b creates what is wanted", func() error {
			if n := len(s.world.Calls(fake.OpCreate)); n != 2 {
				return fmt.Errorf("%d creates", n)
			}
			return nil
		})
		if r := s.leader(); !strings.HasPrefix(r.Holder, "b.") || r.Epoch != 2 {
			t.Errorf("the record is %+v", r)
		}
	})
}

// TestStuckLeaderSaysSo: it keeps the lead while there is no other server. Once the need is met
// again, the problem is over.
func TestStuckLeaderSaysSo(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.config[`"fence_window": "100ms"`] = `"fence_window": "100ms", "give_up": "1s"`
		s.putConfig(shardID)
		var fails atomic.Bool
		fails.Store(true)
		a := s.start(s.listsUnless(&fails))
		a.says("leading; this leader can't act: for 1s or longer, VM listings fail; " +
			"it keeps the lead until a connected standby confirms that it can act")
		a.watchErrors("default").next("it is told", func(e *nstancev1.WatchErrorsResponse) bool { return e.GetReason() == leader.ReasonStuck })
		fails.Store(false)
		eventually(t, "the health endpoint has nothing else to say", func() error {
			if _, body := a.health(); body != "leading\n" {
				return fmt.Errorf("%s", body)
			}
			return nil
		})
		if r := s.leader(); r.Epoch != 1 || r.Released {
			t.Errorf("the record is %+v", r)
		}
	})
}

// unread is a store from which one server can't read everything.
type unread struct {
	object.Store
	fails    *atomic.Bool
	prefix   string
	failures *atomic.Int32
}

func (s unread) may(key string) error {
	if !s.fails.Load() || !strings.HasPrefix(key, s.prefix) {
		return nil
	}
	err := fmt.Errorf("read %s: %w", key, object.ErrUnknown)
	if s.failures.Add(1) == 1 {
		return err
	}
	return lateError{err}
}

// lateError takes a while to be wrapped, so that a failure is clearly later than its read.
type lateError struct{ error }

func (e lateError) Error() string {
	time.Sleep(20 * time.Millisecond)
	return e.error.Error()
}

func (e lateError) Unwrap() error { return e.error }

func (s unread) Get(ctx context.Context, key string) (object.Object, error) {
	if err := s.may(key); err != nil {
		return object.Object{}, err
	}
	return s.Store.Get(ctx, key)
}

func (s unread) List(ctx context.Context, prefix, token string) (object.Page, error) {
	if err := s.may(prefix); err != nil {
		return object.Page{}, err
	}
	return s.Store.List(ctx, prefix, token)
}

// TestTakeoverThatFailsGivesUp: the lead passes to a server that can read everything, also if
// this one can read a part.
func TestTakeoverThatFailsGivesUp(t *testing.T) {
	for prefix, because := range map[string]string{
		"": "object storage reads fail", "config/": "the takeover fails", "instance/": "the takeover fails",
	} {
		t.Run(prefix, simulation(func(t *testing.T) {
			s := newSite(t)
			s.config[`"fence_window": "100ms"`] = `"fence_window": "100ms", "give_up": "5s"`
			s.putConfig(shardID)
			first := s.start(named("first")).awaitLeading()
			var fails atomic.Bool
			a := s.start(func(c *server.Config) { c.Store = unread{s.store, &fails, prefix, new(atomic.Int32)} })
			a.await("serving")
			fails.Store(true)
			first.ends()
			a.says("leading, but waiting: ")
			s.start(named("b")).awaitLeading()
			a.says("standing by; gave the lead to another server")
			if _, body := a.health(); !strings.Contains(body, because) {
				t.Errorf("health says %s, want %s", body, because)
			}
		}))
	}
}
