package shardtest

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// machine is the inside of a VM: a host on the network, a disk, and the agent.
type machine struct {
	shard *Shard
	vm    provider.VM
	spec  provider.Spec
	host  *Host
	addr  string
	dir   string
	rand  *random
	waits func() float64
	// The metadata service, and the address that it reports.
	cloud  *cloud
	inside string
	ended  chan struct{} // closed when the machine is down for good

	mu   sync.Mutex
	down bool // for good
	stop context.CancelFunc
	done chan struct{} // closed when the last start of the agent has ended
}

// watchMachines starts an agent on every running VM, and ends it on those that stopped.
func (s *Shard) watchMachines(ctx context.Context) {
	_ = s.world.Open(scope(), "machines").Watch(ctx, func(e provider.Event) {
		s.mu.Lock()
		m, known := s.machines[e.VM.ProviderID]
		closing := s.closing
		s.mu.Unlock()
		switch {
		case closing:
		case e.VM.State == provider.StateRunning && !known:
			if err := s.boot(ctx, e.VM); err != nil {
				s.book.report("boot %s: %v", e.VM.ID, err)
			}
		case known && !e.VM.State.Alive():
			// A deletion shuts the system down gracefully; a death does not.
			orderly := (e.VM.State == provider.StateDeleting || e.VM.State == provider.StateStopping) && (s.opts.Calm || m.rand.Float() < 0.5)
			s.work.Go(func() { m.end(string(e.VM.State), orderly, s.opts.Calm || m.rand.Float() < 0.5) })
		}
	})
}

// boot writes to a new machine's disk what its userdata would, and starts the agent.
func (s *Shard) boot(ctx context.Context, vm provider.VM) error {
	spec, ok := s.world.Spec(vm.ID)
	if !ok {
		return nil // gone already
	}
	m := &machine{
		shard: s, vm: vm, spec: spec, addr: vm.Addresses[0].String(), dir: filepath.Join(s.opts.Dir, vm.ProviderID),
		rand: newRandom(s.opts.Seed, "machine "+s.Timeline.Name(string(vm.ID))), ended: make(chan struct{}),
	}
	m.waits = s.chance("machine " + s.Timeline.Name(string(vm.ID)))
	m.host = s.network.Host(m.addr)
	m.inside = "169" + strings.TrimPrefix(m.addr, "10")
	var err error
	if m.cloud, err = newCloud(ctx, s.network.Host(m.inside)); err != nil {
		return err
	}
	if err := os.MkdirAll(m.path("identity"), 0o700); err != nil {
		return err
	}
	for name, text := range map[string][]byte{"ca.crt": spec.Bootstrap.CACert, "nonce.jwt": []byte(spec.Bootstrap.Nonce)} {
		if err := os.WriteFile(filepath.Join(m.path("identity"), name), text, 0o600); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.machines[vm.ProviderID] = m
	s.mu.Unlock()
	s.Timeline.Say("machine", "%s runs", vm.ID)
	if s.plagues.strikes(m) {
		return nil
	}
	m.start() //nolint:contextcheck // outlives the watch
	return nil
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// start starts the agent, unless the machine is down.
func (m *machine) start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down || m.done != nil {
		return
	}
	m.host.Up()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	m.stop, m.done = cancel, done
	m.shard.work.Go(func() { m.run(ctx, done) })
}

// run runs the agent, restarting it like a service manager.
func (m *machine) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	for ctx.Err() == nil {
		if err := agent.Run(ctx, m.config()); err != nil && ctx.Err() == nil {
			m.shard.Timeline.Say("machine", "the agent of %s fails: %v", m.vm.ID, err)
		}
		_ = retry.Wait(ctx, 5*time.Second) // fails when ctx ends, which ends the loop
	}
}

func (m *machine) config() agent.Config {
	b, where := m.spec.Bootstrap, "none"
	if m.shard.opts.Spot {
		where = "aws"
	}
	return agent.Config{
		RegistrationAddrs: b.RegistrationAddrs, AgentAddrs: b.AgentAddrs, InstanceID: m.spec.ID, Kind: m.spec.ID.Kind(),
		Hostname: m.spec.Hostname, IPv4: m.addr,
		IdentityDir: m.path("identity"), KeysDir: m.path("keys"), RecvDir: m.path("recv"),
		IdentityMode: 0o600, KeysMode: 0o640, RecvMode: 0o640,
		ReportInterval: b.ReportInterval, SpotPollInterval: 20 * time.Second, Provider: where, Version: "sim",
		Logger: slog.New(&logs{shard: m.shard, actor: "agent " + string(m.spec.ID)}),
		Now:    time.Now, Random: m.waits, Entropy: m.rand,
		Sample: func(context.Context) *nstancev1.Resources { return &nstancev1.Resources{} },
		Dialer: m.dial,
	}
}

// end takes the machine down for good. Orderly: the agent gets a signal first. Told: its
// connections are reset rather than left hanging.
func (m *machine) end(why string, orderly, told bool) {
	m.mu.Lock()
	if m.down {
		m.mu.Unlock()
		return
	}
	m.down = true
	close(m.ended)
	stop, done := m.stop, m.done
	m.mu.Unlock()
	m.shard.Timeline.Say("machine", "%s is down: %s", m.vm.ID, why)
	m.shard.book.doom(m.vm.ID)
	m.halt(stop, done, orderly, told)
	m.cloud.close()
	os.RemoveAll(m.dir)
}

// halt ends the agent: by a signal that it can handle, or by killing it.
func (m *machine) halt(stop context.CancelFunc, done chan struct{}, orderly, told bool) {
	if done == nil {
		return
	}
	if !orderly {
		m.host.Down(told)
	}
	stop()
	<-done
	if orderly {
		m.host.Down(true)
	}
}

// killAgent ends the agent, and starts it again after d.
func (m *machine) killAgent(orderly bool, d time.Duration) {
	m.mu.Lock()
	stop, done, down := m.stop, m.done, m.down
	m.mu.Unlock()
	if down || done == nil {
		return
	}
	m.halt(stop, done, orderly, true)
	m.mu.Lock()
	if m.done == done {
		m.done = nil
	}
	m.mu.Unlock()
	time.Sleep(d)
	m.start()
}

// lives reports whether a machine of the instance runs, or will.
func (s *Shard) lives(id fleet.InstanceID) bool {
	return slices.ContainsFunc(s.world.VMs(), func(vm provider.VM) bool { return vm.ID == id && vm.State.Alive() })
}

// allMachines returns the booted machines, sorted by id.
func (s *Shard) allMachines() []*machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*machine
	for _, m := range s.machines {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *machine) int {
		return cmp.Or(cmp.Compare(a.vm.ID, b.vm.ID), cmp.Compare(a.vm.ProviderID, b.vm.ProviderID))
	})
	return all
}
