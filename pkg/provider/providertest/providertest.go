// Package providertest is the contract of package provider as one conformance
// suite, run on every implementation. A provider passes it over a world that it
// has to itself: an empty directory, a container engine, rows in memory.
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

// World is where the VMs of one test live.
type World struct {
	// Open makes a new provider.Provider over the world. It is called more than
	// once for one scope: the second handle is a restarted server, or the other
	// server of the shard. Whatever it holds is released by t.Cleanup.
	Open func(t *testing.T, scope provider.Scope) provider.Provider

	// Cluster is the cluster id to use, for a world that is not the test's alone;
	// empty: any. Names that begin with it are the test's too.
	Cluster string

	// Complete adds what this provider needs to a spec; nil: nothing.
	Complete func(spec *provider.Spec)

	// Kill ends a VM's operating system behind the provider's back.
	Kill func(t *testing.T, vm provider.VM)
	// Killed is in the Reason of a VM that was killed and is still there.
	Killed string

	// Plant makes something with exactly these tags behind the provider's back,
	// cleaned up by t.Cleanup.
	Plant func(t *testing.T, tags map[string]string)

	// Patience is how long a change of state may take before it counts as not
	// happening.
	Patience time.Duration

	// BadArgs are args each of which Create must refuse as ErrInvalid; nil: any go.
	BadArgs []map[string]any
	// Short makes the world refuse creates for lack of room until relieve is called; nil: it
	// always has room for a test.
	Short func(t *testing.T) (relieve func())
	// Eventual is how long reads may lag behind changes, and contradict each other:
	// wherever a provider with consistent reads must answer at once, the suite waits
	// that long first. 0: the reads are consistent, and the provider says so.
	Eventual time.Duration

	// What the optional parts of a provider are tested by. A world must have it
	// if its provider offers the part.

	// Subnet is an empty one for a handful of VMs, for provider.SubnetCapacity.
	Subnet string
	// Images are questions and answers for provider.ImageResolver.
	Images []ImageCase
	// InstanceTypes are some for provider.InstanceTypes.
	InstanceTypes map[string]provider.InstanceType
	// Target makes an empty target for provider.LoadBalancer; MissingTarget is
	// the name of one that does not exist.
	Target        func(t *testing.T) string
	MissingTarget string
}

// Harness makes worlds.
type Harness struct {
	// New makes an empty world, cleaned up by t.Cleanup.
	New func(t *testing.T) World
	// Around runs each test when it is set; testing/synctest.Test fits.
	Around func(t *testing.T, f func(*testing.T))
	// Parallel is how many tests may run at once, each in a world of its own; 0:
	// one after the other.
	Parallel int
}

// Run checks the whole contract.
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

// shard is one world and a handle on one scope of it.
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

// newID makes an id that no earlier run can have used.
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

// spec asks for a new VM of the given scope.
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

// create makes one VM and waits until it runs.
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

// catchUp waits until reads show what has been changed.
func (s *shard) catchUp() { time.Sleep(s.Eventual) }

// await asks until the VM is in the wanted state; StateDeleted is also reached
// by ErrNotFound.
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

// eventually asks until ok, and fails the test when patience ends before.
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

// list returns the scope's VMs that are not gone, once reads show them.
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
