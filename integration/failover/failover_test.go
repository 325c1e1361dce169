//go:build integration

package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/nstance/nstance/integration/containers"
	"github.com/nstance/nstance/pkg/admin"
)

// A leader that is cut off may act until its fence window is over; it is suspected after
// its lease, for which a tenth is allowed, and replaced in two seconds.
const cutOff = lease + lease/10 + 2*time.Second

// patience is how long anything may take that has happened long before, unless something
// hangs: what it took is printed beside its target.
const patience = 2 * time.Minute

// slow is how long after the new leader began callers may wait without a word about it: a
// packet that is lost while the address moves costs a second.
const slow = 3 * time.Second

// fault is one way in which a leader fails.
type fault struct {
	name   string
	target time.Duration // from the fault until the other server acts; printed beside what was seen
	cause  func(context.Context, *scene, *containers.Container) error
	mend   func(context.Context, *scene, *containers.Container) error
}

func faults() []fault {
	restart := func(ctx context.Context, _ *scene, c *containers.Container) error {
		return errors.Join(c.Ended(ctx), c.Start(ctx))
	}
	stop := fault{"SIGTERM", 500 * time.Millisecond,
		func(ctx context.Context, _ *scene, c *containers.Container) error { return c.Signal(ctx, "TERM") }, restart}
	kill := fault{"SIGKILL", 2 * time.Second,
		func(ctx context.Context, _ *scene, c *containers.Container) error { return c.Signal(ctx, "KILL") }, restart}
	return []fault{
		stop, kill, stop, kill, stop, kill,
		{"paused", cutOff,
			func(ctx context.Context, _ *scene, c *containers.Container) error { return c.Pause(ctx) },
			func(ctx context.Context, _ *scene, c *containers.Container) error { return c.Unpause(ctx) }},
		{"cut off from storage and peer", cutOff,
			func(ctx context.Context, s *scene, c *containers.Container) error { return c.Disconnect(ctx, s.core) },
			func(ctx context.Context, s *scene, c *containers.Container) error { return c.Connect(ctx, s.core) }},
	}
}

// TestLeaderFails in every way, while a machine dies: the other server replaces that
// machine, and no other; agents and callers keep the one address that they know; and at
// no time do both servers change something on the engine.
func TestLeaderFails(t *testing.T) {
	s := begin(t)
	first := s.running()
	s.dialled(first)
	leads, _ := s.leader()
	led := []string{leads}
	for n, f := range faults() {
		ok := t.Run(fmt.Sprintf("%d %s", n+1, f.name), func(t *testing.T) {
			within := *s
			within.World = s.In(t)
			led = append(led, within.fail(f))
		})
		if !ok {
			return // the shard is not as the next fault wants it
		}
	}
	s.dialled(s.running())
	s.scaled()
	var acted []string
	for _, spell := range containers.Spells(s.calls.Calls()) {
		acted = append(acted, spell.Server)
		t.Logf("%s made %d changes from %s to %s", spell.Server, spell.Calls, clock(spell.First), clock(spell.Last))
	}
	if !slices.Equal(acted, led) {
		t.Errorf("these acted, one after another: %v, want those that led: %v\n%s", acted, led, s.history(time.Time{}))
	}
}

// fail has the leader fail and a machine die, and returns the server that acts then.
func (s *scene) fail(f fault) (acts string) {
	s.Helper()
	leads, other := s.leader()
	before, synced := s.running(), s.seen.times()
	victim := before[0]
	ctx := s.Context()
	from := time.Now()
	s.Must(f.cause(ctx, s, s.servers[leads]))
	s.kill(victim)
	acted := s.first(other, from, "/networks/")
	created := s.first(other, from, "/containers/create")
	answered := s.answers(from)
	after := s.running()
	settled := time.Since(from)
	s.Logf("%s, %s: %s acted (took the address) after %s, target %s; it replaced the dead machine after %s, "+
		"callers were answered after %s, all agents were back after %s",
		leads, f.name, other, short(acted), f.target, short(created), short(answered), short(settled))
	if answered > acted+slow {
		s.Logf("callers waited for long. Asked of the engine was:\n%s", s.history(from))
	}
	s.replaced(before, after, victim)
	s.Eventually(patience, "the watch goes on", func(context.Context) error {
		if s.seen.times() == synced {
			return errors.New("it has not connected again")
		}
		return nil
	})
	s.Must(f.mend(ctx, s, s.servers[leads]))
	if again, _ := s.leader(); again != other {
		s.Errorf("%s leads once %s is back, want %s", again, leads, other)
	}
	s.quiet(leads, from)
	return other
}

// first waits for a server's first change of a kind after a moment, and returns how long
// after it was asked for.
func (s *scene) first(server string, from time.Time, path string) (after time.Duration) {
	s.Helper()
	s.Eventually(patience, server+" asks for "+path, func(context.Context) error {
		for _, c := range s.calls.Calls() {
			if c.Server == server && c.Began.After(from) && strings.HasPrefix(c.Path, path) {
				after = c.Began.Sub(from)
				return nil
			}
		}
		return errors.New("it has not")
	})
	return after
}

// answers waits until the shard answers at its address, and returns how long that took.
func (s *scene) answers(from time.Time) time.Duration {
	s.Helper()
	s.Eventually(patience, "the shard answers at its address", func(ctx context.Context) error {
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := s.ask.ListGroups(within, s.at())
		return err
	})
	return time.Since(from)
}

// replaced checks that the machine that died was replaced, and no other.
func (s *scene) replaced(before, after []string, victim string) {
	s.Helper()
	for _, id := range before {
		if stays := slices.Contains(after, id); stays == (id == victim) {
			s.Errorf("%s stays: %t; before there were %v, of which %s died, and now %v", id, stays, before, victim, after)
		}
	}
}

// quiet checks that a leader did nothing more once the other had begun.
func (s *scene) quiet(old string, from time.Time) {
	s.Helper()
	var acts bool
	for _, c := range s.calls.Calls() {
		switch {
		case c.Began.Before(from):
		case c.Server != old:
			acts = true
		case acts:
			s.Errorf("%s, which does not lead any more, asked at %s for %s %s\n%s", old, clock(c.Began), c.Method, c.Path, s.history(from))
			return
		}
	}
}

// dialled checks that agents know the one address that moves, and no other.
func (s *scene) dialled(ids []string) {
	s.Helper()
	for _, id := range ids {
		c, err := s.API.ContainerInspect(s.Context(), "nstance-"+id, client.ContainerInspectOptions{})
		s.Must(err)
		for _, variable := range []string{"NSTANCE_SERVER_REGISTRATION_ADDR=" + s.address.String() + ":8992",
			"NSTANCE_SERVER_AGENT_ADDR=" + s.address.String() + ":8994"} {
			if !slices.Contains(c.Container.Config.Env, variable) {
				s.Errorf("%s has no %s but %v", id, variable, c.Container.Config.Env)
			}
		}
	}
}

// scaled checks that the caller that was there from the start can change the group still.
func (s *scene) scaled() {
	s.Helper()
	larger := int32(size + 1)
	_, err := s.ask.UpsertGroup(s.Context(), s.at(), admin.Change{Key: "web", Size: &larger})
	s.Must(err)
	s.Eventually(patience, "the group grows", func(ctx context.Context) error {
		groups, err := s.ask.GroupStatus(ctx, s.at(), "web")
		if err == nil && groups[0].ActualSize != larger {
			err = fmt.Errorf("%d run", groups[0].ActualSize)
		}
		return err
	})
}

// history is what both servers changed after a moment.
func (s *scene) history(from time.Time) string {
	var text strings.Builder
	for _, c := range s.calls.Calls() {
		if !c.Began.Before(from) {
			fmt.Fprintf(&text, "%s %s %s %s, answered within %s\n", clock(c.Began), c.Server, c.Method, c.Path, c.Took.Round(time.Millisecond))
		}
	}
	return text.String()
}

func clock(at time.Time) string           { return at.Format("15:04:05.000") }
func short(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
