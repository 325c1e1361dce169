package server_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server"
)

// address is an address that moves between servers: the last one to take it holds it.
type address struct {
	holder atomic.Value
	checks atomic.Int32
	// slow is the server whose permitted calls are delayed until land lets them take effect.
	slow atomic.Value
	land chan func()
}

// movedBy is a provider that moves the address for one server, if its config names one.
type movedBy struct {
	provider.Provider
	of     server.Opening
	moving *address
}

func (p movedBy) LeaderNetwork() (provider.LeaderNetwork, bool) {
	return p, p.of.Leader != config.LeaderNetwork{}
}

func (p movedBy) Assign(ctx context.Context) error {
	if err := provider.Permit(ctx); err != nil {
		return err
	}
	take := func() { p.moving.holder.Store(p.of.Leader.InterfaceID + " of " + p.of.Self) }
	if p.moving.slow.Load() == p.of.Self {
		p.moving.land <- take
		<-ctx.Done()
		return ctx.Err()
	}
	take()
	return nil
}

func (p movedBy) Check(context.Context) (bool, error) {
	p.moving.checks.Add(1)
	return p.moving.holder.Load() == p.of.Leader.InterfaceID+" of "+p.of.Self, nil
}

// TestLeaderNetwork: two servers share one config with the address; each is started with its
// machine's ID. The leader takes the address.
func TestLeaderNetwork(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		var moving address
		on := func(machine string) func(*server.Config) {
			return func(c *server.Config) {
				c.ID, c.Self = machine, machine
				c.OpenProvider = func(o server.Opening) (provider.Provider, error) {
					return movedBy{s.world.Open(o.Scope, machine), o, &moving}, nil
				}
			}
		}
		held := func(want any) func() error {
			return func() error {
				if got := moving.holder.Load(); got != want {
					return fmt.Errorf("it is on %v", got)
				}
				return nil
			}
		}
		p := s.start(on("m-1")).awaitLeading()
		if got := moving.holder.Load(); got != nil {
			t.Errorf("without an address in the config, %v has it", got)
		}
		p.ends()

		s.config["MORE"] = `"leader_network": { "ipv4": "10.9.9.9", "interface_id": "eni-1" },`
		s.putConfig(shardID)
		first := s.start(on("m-1"))
		eventually(t, "the leader has the address", held("eni-1 of m-1"))
		second := s.start(on("m-2"))
		second.awaitHealth(200, "standing by")
		first.ends()
		eventually(t, "the next leader takes it", held("eni-1 of m-2"))
	})
}

// TestLateAssign: a permitted call of the former leader takes the address away 3 seconds after
// the next leader took it. That is detected within seconds, at a bounded cost.
func TestLateAssign(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("MORE", `"leader_network": { "ipv4": "10.9.9.9", "interface_id": "eni-1" },`))
		moving := address{land: make(chan func(), 1)}
		moving.slow.Store("m-1")
		on := func(machine string) func(*server.Config) {
			return func(c *server.Config) {
				c.ID, c.Self = machine, machine
				c.OpenProvider = func(o server.Opening) (provider.Provider, error) {
					return movedBy{s.world.Open(o.Scope, machine), o, &moving}, nil
				}
			}
		}
		held := func() error {
			if got := moving.holder.Load(); got != "eni-1 of m-2" {
				return fmt.Errorf("it is on %v", got)
			}
			return nil
		}
		first := s.start(on("m-1"))
		late := <-moving.land
		second := s.start(on("m-2"))
		second.awaitHealth(200, "standing by")
		first.ends()
		eventually(t, "the next leader takes it", held)
		time.Sleep(3 * time.Second)
		late()
		began := time.Now()
		eventually(t, "the leader takes it back", held)
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("taken back after %v, want seconds", took)
		}
		time.Sleep(10 * time.Minute)
		before := moving.checks.Load()
		if before > 220 {
			t.Errorf("%d checks in ten minutes", before)
		}
		time.Sleep(10 * time.Minute)
		if later := moving.checks.Load() - before; later > 6 {
			t.Errorf("%d checks in the next ten minutes, want those of the sweep's pace", later)
		}
	})
}

// TestLeadersAddressOnce: if the moving address is also advertised to callers, instances get it
// once.
func TestLeadersAddressOnce(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, _, id := newborn(t, `"leader_network": { "ipv4": "10.9.9.9" },
			"advertise": { "registration_addr": "10.9.9.9:7001", "agent_addr": "10.9.9.9:7002" },`)
		spec, ok := s.world.Spec(id)
		if b := spec.Bootstrap; !ok || !slices.Equal(b.RegistrationAddrs, []string{"10.9.9.9:7001"}) ||
			!slices.Equal(b.AgentAddrs, []string{"10.9.9.9:7002"}) {
			t.Errorf("dials %v and %v", spec.Bootstrap.RegistrationAddrs, spec.Bootstrap.AgentAddrs)
		}
	})
}

// TestAcceptedLeaderNetwork: a config that was accepted before the provider checked the address
// stays active, and its mistake is reported.
func TestAcceptedLeaderNetwork(t *testing.T) {
	simulated(t, func(t *testing.T) {
		dir := t.TempDir()
		agent := filepath.Join(dir, "agent")
		if err := os.WriteFile(agent, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		s := newSite(t, with("GROUPS", ""), with("MORE", `"leader_network": { "ipv4": "10.9.9.9", "interface_id": "eni-1" },`))
		s.replace(`"kind": "fake"`, fmt.Sprintf(`"kind": "process", "options": { "dir": %q, "agent": %q }`, dir, agent))
		s.put(appliedAt, s.get(configAt))
		p := s.start(func(c *server.Config) { c.OpenProvider = nil }).awaitLeading()
		st := p.configStatus()
		if v := st.GetViolations(); !st.GetRunningApplied() || len(v) != 1 || v[0].GetField() != "server.leader_network.interface_id" {
			t.Errorf("status: %v", st)
		}
	})
}
