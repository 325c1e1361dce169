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
	shards "github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// A leader that is cut off may act until the end of its fence window; it is suspected after its
// lease, for which a tenth is added, and replaced within two seconds.
const cutOff = lease + lease/10 + 2*time.Second

// patience bounds every wait, so that only a hang fails; the actual time is printed beside its
// target.
const patience = 2 * time.Minute

// slow is how long callers may wait without a message after the new leader's start: a packet lost
// while the address moves costs a second.
const slow = 3 * time.Second

// fault is one way in which a leader fails.
type fault struct {
	name   string
	target time.Duration // from the fault until the other server acts; printed beside the measured time
	cause  func(context.Context, *fixture, *containers.Container) error
	mend   func(context.Context, *fixture, *containers.Container) error
}

func faults() []fault {
	restart := func(ctx context.Context, _ *fixture, c *containers.Container) error {
		return errors.Join(c.Ended(ctx), c.Start(ctx))
	}
	stop := fault{"SIGTERM", 500 * time.Millisecond,
		func(ctx context.Context, _ *fixture, c *containers.Container) error { return c.Signal(ctx, "TERM") }, restart}
	kill := fault{"SIGKILL", 2 * time.Second,
		func(ctx context.Context, _ *fixture, c *containers.Container) error { return c.Signal(ctx, "KILL") }, restart}
	return []fault{
		stop, kill, stop, kill, stop, kill,
		{"paused", cutOff,
			func(ctx context.Context, _ *fixture, c *containers.Container) error { return c.Pause(ctx) },
			func(ctx context.Context, _ *fixture, c *containers.Container) error { return c.Unpause(ctx) }},
		{"cut off from storage and peer", cutOff,
			func(ctx context.Context, f *fixture, c *containers.Container) error { return c.Disconnect(ctx, f.core) },
			func(ctx context.Context, f *fixture, c *containers.Container) error { return c.Connect(ctx, f.core) }},
	}
}

// TestLeaderFails in every way, while a machine dies: the other server replaces that machine, and
// no other; agents and callers keep the one address that they know; and never do both servers
// change something on the engine at the same time.
func TestLeaderFails(t *testing.T) {
	f := newFixture(t)
	first := f.running()
	f.dialled(first)
	leads, _ := f.leader()
	led := []string{leads}
	for n, one := range faults() {
		ok := t.Run(fmt.Sprintf("%d %s", n+1, one.name), func(t *testing.T) {
			within := *f
			within.World = f.In(t)
			led = append(led, within.fail(one))
		})
		if !ok {
			return // the shard's state does not fit the next fault
		}
	}
	f.dialled(f.running())
	f.scaled()
	var acted []string
	for _, spell := range containers.Spells(f.calls.Calls()) {
		acted = append(acted, spell.Server)
		t.Logf("%s made %d changes from %s to %s", spell.Server, spell.Calls, clock(spell.First), clock(spell.Last))
	}
	if !slices.Equal(acted, led) {
		t.Errorf("these acted, one after another: %v, want those that led: %v\n%s", acted, led, f.history(time.Time{}))
	}
}

// fail makes the leader fail and a machine die, and returns the server that acts then.
func (f *fixture) fail(one fault) (acts string) {
	f.Helper()
	leads, other := f.leader()
	before, synced := f.running(), f.seen.times()
	victim := before[0]
	ctx := f.Context()
	from := time.Now()
	f.Must(one.cause(ctx, f, f.servers[leads]))
	f.kill(victim)
	acted := f.first(other, from, "/networks/")
	created := f.first(other, from, "/containers/create")
	answered := f.answers(from)
	after := f.running()
	settled := time.Since(from)
	f.Logf("%s, %s: %s acted (took the address) after %s, target %s; it replaced the dead machine after %s, "+
		"callers were answered after %s, all agents were back after %s",
		leads, one.name, other, short(acted), one.target, short(created), short(answered), short(settled))
	if answered > acted+slow {
		f.Logf("callers waited for long. Asked of the engine was:\n%s", f.history(from))
	}
	f.replaced(before, after, victim)
	f.Eventually(patience, "the watch goes on", func(context.Context) error {
		if f.seen.times() == synced {
			return errors.New("it has not connected again")
		}
		return nil
	})
	f.Must(one.mend(ctx, f, f.servers[leads]))
	if again, _ := f.leader(); again != other {
		f.Errorf("%s leads once %s is back, want %s", again, leads, other)
	}
	f.quiet(leads, from)
	return other
}

// first waits for a server's first change of a kind after a time, and returns how long after it was
// requested.
func (f *fixture) first(server string, from time.Time, path string) (after time.Duration) {
	f.Helper()
	f.Eventually(patience, server+" asks for "+path, func(context.Context) error {
		for _, c := range f.calls.Calls() {
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
func (f *fixture) answers(from time.Time) time.Duration {
	f.Helper()
	f.Eventually(patience, "the shard answers at its address", func(ctx context.Context) error {
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := f.ask.ListGroups(within, f.at(), shards.Parts{})
		return err
	})
	return time.Since(from)
}

// replaced checks that the machine that died was replaced, and no other.
func (f *fixture) replaced(before, after []string, victim string) {
	f.Helper()
	for _, id := range before {
		if stays := slices.Contains(after, id); stays == (id == victim) {
			f.Errorf("%s stays: %t; before there were %v, of which %s died, and now %v", id, stays, before, victim, after)
		}
	}
}

// quiet checks that a leader made no changes once the other had begun.
func (f *fixture) quiet(old string, from time.Time) {
	f.Helper()
	var acts bool
	for _, c := range f.calls.Calls() {
		switch {
		case c.Began.Before(from):
		case c.Server != old:
			acts = true
		case acts:
			f.Errorf("%s, which does not lead any more, asked at %s for %s %s\n%s", old, clock(c.Began), c.Method, c.Path, f.history(from))
			return
		}
	}
}

// dialled checks that agents know only the address that moves.
func (f *fixture) dialled(ids []string) {
	f.Helper()
	for _, id := range ids {
		c, err := f.API.ContainerInspect(f.Context(), "nstance-"+id, client.ContainerInspectOptions{})
		f.Must(err)
		for _, variable := range []string{"NSTANCE_SERVER_REGISTRATION_ADDR=" + f.address.String() + ":8992",
			"NSTANCE_SERVER_AGENT_ADDR=" + f.address.String() + ":8994"} {
			if !slices.Contains(c.Container.Config.Env, variable) {
				f.Errorf("%s has no %s but %v", id, variable, c.Container.Config.Env)
			}
		}
	}
}

// scaled checks that the caller from the start can still change the group.
func (f *fixture) scaled() {
	f.Helper()
	larger := int32(size + 1)
	_, err := f.ask.UpsertGroup(f.Context(), f.at(), &nstancev1.UpsertGroupRequest{Key: "web", Size: &larger})
	f.Must(err)
	f.Eventually(patience, "the group grows", func(ctx context.Context) error {
		groups, err := f.ask.GroupStatus(ctx, f.at(), "web")
		if err == nil && groups[0].ActualSize != larger {
			err = fmt.Errorf("%d run", groups[0].ActualSize)
		}
		return err
	})
}

// history returns the changes of both servers after a time.
func (f *fixture) history(from time.Time) string {
	var text strings.Builder
	for _, c := range f.calls.Calls() {
		if !c.Began.Before(from) {
			fmt.Fprintf(&text, "%s %s %s %s, answered within %s\n", clock(c.Began), c.Server, c.Method, c.Path, c.Took.Round(time.Millisecond))
		}
	}
	return text.String()
}

func clock(at time.Time) string           { return at.Format("15:04:05.000") }
func short(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
