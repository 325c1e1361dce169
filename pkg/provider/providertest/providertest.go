// Package providertest is the conformance suite of package provider, run for every
// implementation. Each test has a world of its own: an empty directory, a container engine,
// rows in memory.
package providertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

// World is the environment of one test.
type World struct {
	// Open creates a provider.Provider over the world. It is called more than once per scope:
	// the second handle is a restarted server, or the shard's other server. t.Cleanup releases
	// its resources.
	Open func(t *testing.T, scope provider.Scope) provider.Provider

	// Cluster is the cluster ID to use in a world shared with others; empty: any. Names that
	// begin with it belong to the test too.
	Cluster string

	// Complete adds what this provider requires to a spec; nil: nothing.
	Complete func(spec *provider.Spec)

	// Kill ends a VM's operating system behind the provider's back.
	Kill func(t *testing.T, vm provider.VM)
	// Killed is contained in the Reason of a killed VM that still exists.
	Killed string

	// Plant creates a VM with exactly these tags behind the provider's back; t.Cleanup removes
	// it.
	Plant func(t *testing.T, tags map[string]string)

	// Patience is the timeout for a change of state.
	Patience time.Duration

	// BadArgs are args that Create must refuse as ErrInvalid; nil: all are accepted.
	BadArgs []map[string]any
	// Short makes the world refuse creates for lack of capacity until relieve is called; nil:
	// the world always has capacity.
	Short func(t *testing.T) (relieve func())
	// Eventual is how stale reads may be: where a provider with consistent reads must answer at
	// once, the suite waits that long first. 0: reads are consistent, and the provider reports
	// so.
	Eventual time.Duration

	// Fixtures for optional features. Required if the provider has the feature.

	// Subnet is an empty subnet with room for a few VMs, for provider.SubnetCapacity.
	Subnet string
	// Images are queries and answers for provider.ImageResolver.
	Images []ImageCase
	// InstanceTypes are examples for provider.InstanceTypes.
	InstanceTypes map[string]provider.InstanceType
	// Target creates an empty target for provider.LoadBalancer; MissingTarget is the name of a
	// target that does not exist.
	Target        func(t *testing.T) string
	MissingTarget string
}

// Harness creates worlds.
type Harness struct {
	// New creates an empty world; t.Cleanup removes it.
	New func(t *testing.T) World
	// Around, if set, runs each test; for example testing/synctest.Test.
	Around func(t *testing.T, f func(*testing.T))
	// Parallel is the number of concurrent tests, each in its own world; 0: sequential.
	Parallel int
}

// Run runs the whole suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	room := make(chan struct{}, max(h.Parallel, 1))
	for _, c := range []struct {
		name string
		test func(*testing.T, *shard)
	}{
		{"Lifecycle", testLifecycle},
		{"CreateTwice", testCreateTwice},
		{"CreateRace", testCreateRace},
		{"CreateRefusesWhatItCannotKeep", testCreateInvalid},
		{"RefusedThenOtherParameters", testRefusedThenChanged},
		{"Tags", testTags},
		{"ConsistentReads", testConsistentReads},
		{"References", testReferences},
		{"ListOrder", testListOrder},
		{"ListScope", testListScope},
		{"ListStrays", testListStrays},
		{"ForeignScopeIsUntouchable", testForeignScope},
		{"DeleteUnknown", testDeleteUnknown},
		{"DeleteTwice", testDeleteTwice},
		{"DeleteRace", testDeleteRace},
		{"BatchGet", testBatchGet},
		{"BatchDelete", testBatchDelete},
		{"BatchSizes", testBatchSizes},
		{"BatchFails", testBatchFails},
		{"Cancelled", testCancelled},
		{"Guard", testGuard},
		{"Reopen", testReopen},
		{"Death", testDeath},
		{"WatchDeath", testWatchDeath},
		{"WatchDeathFromElsewhere", testWatchDeathFromElsewhere},
		{"WatchEnds", testWatchEnds},
		{"Args", testArgs},
		{"SubnetCapacity", testSubnetCapacity},
		{"SubnetFull", testSubnetFull},
		{"Images", testImages},
		{"InstanceTypes", testInstanceTypes},
		{"LoadBalancer", testLoadBalancer},
		{"LoadBalancerRefusals", testLoadBalancerRefusals},
		{"LoadBalancerGuard", testLoadBalancerGuard},
	} {
		t.Run(c.name, func(t *testing.T) {
			if h.Parallel > 0 {
				t.Parallel()
				room <- struct{}{}
				defer func() { <-room }()
			}
			run := func(t *testing.T) { c.test(t, newShard(t, h)) }
			if h.Around != nil {
				h.Around(t, run)
				return
			}
			run(t)
		})
	}
}

// shard is a world and a handle on one of its scopes.
type shard struct {
	World
	provider.Provider
	scope  provider.Scope
	random *rand.Rand
}

func newShard(t *testing.T, h Harness) *shard {
	world := h.New(t)
	if world.Cluster == "" {
		world.Cluster = "conformance"
	}
	s := &shard{
		World:  world,
		scope:  provider.Scope{ClusterID: world.Cluster, Shard: "shard-1"},
		random: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)),
	}
	if s.Patience <= 0 {
		t.Fatal("the harness gave a world without patience")
	}
	s.Provider = s.Open(t, s.scope)
	return s
}

// newID makes an ID that no earlier run can have used.
func (s *shard) newID(t *testing.T) fleet.InstanceID {
	t.Helper()
	id, err := fleet.NewID("knc", time.Now(), reader{s.random})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

type reader struct{ r *rand.Rand }

func (r reader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.r.Uint32())
	}
	return len(p), nil
}

// spec returns a spec of a new VM in the given scope.
func (s *shard) spec(t *testing.T, scope provider.Scope) provider.Spec {
	t.Helper()
	id := s.newID(t)
	spec := provider.Spec{
		ID:           id,
		Hostname:     string(id),
		Arch:         "amd64",
		InstanceType: "small",
		Subnet:       "subnet-a",
		Tags:         scope.Tags(fleet.Instance{ID: id, Tenant: "default", Group: "web"}),
		Bootstrap: provider.Bootstrap{
			CACert:            []byte("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"),
			Nonce:             "a.b.c",
			RegistrationAddrs: []string{"127.0.0.1:8992"},
			AgentAddrs:        []string{"127.0.0.1:8994"},
			ReportInterval:    2 * time.Second,
		},
	}
	if s.Complete != nil {
		s.Complete(&spec)
	}
	return spec
}

// create creates one VM and waits until it runs.
func (s *shard) create(t *testing.T) provider.VM {
	t.Helper()
	spec := s.spec(t, s.scope)
	vm, err := s.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	vm = s.await(t, s.Provider, vm.Ref(), provider.StateRunning)
	s.catchUp()
	return vm
}

// catchUp waits until reads are up to date.
func (s *shard) catchUp() { time.Sleep(s.Eventual) }

// await polls until the VM is in the wanted state; ErrNotFound counts as StateDeleted.
func (s *shard) await(t *testing.T, p provider.Provider, ref provider.Ref, want provider.State) provider.VM {
	t.Helper()
	var vm provider.VM
	s.eventually(t, fmt.Sprintf("%s is %s", ref.ID, want), func() (bool, string) {
		var err error
		vm, err = provider.GetOne(t.Context(), p, ref)
		if isNotFound(err) {
			vm.State = provider.StateDeleted
			err = nil
		}
		return err == nil && vm.State == want, fmt.Sprintf("state %q, error %v", vm.State, err)
	})
	return vm
}

// eventually polls until ok, and fails the test after Patience.
func (s *shard) eventually(t *testing.T, what string, ask func() (ok bool, seen string)) {
	t.Helper()
	deadline := time.Now().Add(s.Patience)
	for {
		ok, seen := ask()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s; last seen: %s", s.Patience, what, seen)
		}
		if retry.Wait(t.Context(), 5*time.Millisecond) != nil {
			t.Fatalf("test ended while waiting: %s", what)
		}
	}
}

// list returns the scope's existing VMs, once reads are up to date.
func (s *shard) list(t *testing.T, p provider.Provider) []provider.VM {
	t.Helper()
	s.catchUp()
	vms, err := p.List(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	var out []provider.VM
	for _, vm := range vms {
		if vm.State.Exists() {
			out = append(out, vm)
		}
	}
	return out
}
