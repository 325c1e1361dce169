package machine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// fleet is some shards that do what they are asked at once, as the protocol has it. A
// call of it counts among the steps at which a test may have something break.
type fleet struct {
	mu     sync.Mutex
	shards map[string]*fakeShard
	step   func(what string) (before, after error)
	asked  []string // every call that came through
	made   int
}

type fakeShard struct {
	state     shards.State
	groups    map[string]*nstancev1.GroupStatus
	instances map[string]*nstancev1.InstanceStatus
	refuse    error
}

// silent has not answered for long.
func (s *fakeShard) silent() {
	s.state.Reachable, s.state.Synced, s.state.Err, s.state.Since = false, false, errors.New("no answer"), time.Unix(1, 0)
}

func newFleet(names ...string) *fleet {
	f := &fleet{shards: map[string]*fakeShard{}, step: func(string) (error, error) { return nil, nil }}
	for _, n := range names {
		f.shards[n] = &fakeShard{
			state:  shards.State{Reachable: true, Known: true, Synced: true, LastSync: time.Unix(1, 0)},
			groups: map[string]*nstancev1.GroupStatus{"web": group("web")}, instances: map[string]*nstancev1.InstanceStatus{},
		}
	}
	return f
}

func group(key string) *nstancev1.GroupStatus {
	return &nstancev1.GroupStatus{
		Key: key, InstanceType: "small", Capacity: &nstancev1.MachineCapacity{CpuMillis: 4000, MemoryBytes: 8 << 30, Arch: "arm64"},
	}
}

func (f *fleet) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.shards))
}

func (f *fleet) State(shard string) (shards.State, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.shards[shard]
	if !ok {
		return shards.State{}, false
	}
	return s.state, true
}

func (f *fleet) Group(shard, group string) *nstancev1.GroupStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shards[shard].groups[group]
}

func (f *fleet) Instance(shard, id string) *nstancev1.InstanceStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i, ok := f.shards[shard].instances[id]; ok {
		return proto.CloneOf(i)
	}
	return nil
}

func (f *fleet) Missing(shard, _, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.shards[shard]
	return ok && s.state.Synced && s.instances[id] == nil
}

func (f *fleet) Instances(shard, group string) []*nstancev1.InstanceStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*nstancev1.InstanceStatus
	for _, id := range slices.Sorted(maps.Keys(f.shards[shard].instances)) {
		if i := f.shards[shard].instances[id]; group == "" || i.GetGroup() == group {
			all = append(all, proto.CloneOf(i))
		}
	}
	return all
}

// all are the instances of every shard that are not deleted.
func (f *fleet) all() []*nstancev1.InstanceStatus {
	var all []*nstancev1.InstanceStatus
	for _, name := range f.Names() {
		all = append(all, f.Instances(name, "")...)
	}
	return slices.DeleteFunc(all, func(i *nstancev1.InstanceStatus) bool { return i.GetPhase() == deleted })
}

const (
	pending  = nstancev1.InstancePhase_INSTANCE_PHASE_PENDING
	running  = nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING
	draining = nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING
	deleting = nstancev1.InstancePhase_INSTANCE_PHASE_DELETING
	deleted  = nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
)

// set changes an instance, as if its shard told so.
func (f *fleet) set(shard, id string, change func(*nstancev1.InstanceStatus)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f.shards[shard].instances[id])
}

// change changes a shard.
func (f *fleet) change(shard string, change func(*fakeShard)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f.shards[shard])
}

// put has a shard have an instance.
func (f *fleet) put(shard, id string, onDemand bool, p nstancev1.InstancePhase) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shards[shard].instances[id] = instance(id, onDemand, p)
}

func instance(id string, onDemand bool, p nstancev1.InstancePhase) *nstancev1.InstanceStatus {
	i := &nstancev1.InstanceStatus{
		Id: id, Group: "web", OnDemand: onDemand, Phase: p, NodeProviderId: "docker:///" + id, InstanceType: "small",
		Hostname: "host-" + id, Ips: []string{"10.0.0.7", "8.8.8.8", "nonsense"},
	}
	if p != pending {
		i.RegisteredAt = timestamppb.New(time.Unix(100, 0))
	}
	return i
}

// call makes a change on a shard, unless the test has it break, before or after.
func (f *fleet) call(shard, what string, change func(*fakeShard) error) error {
	before, after := f.step(what)
	if before != nil {
		return before
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.shards[shard]
	switch {
	case s == nil:
		return fmt.Errorf("shard %s: not configured", shard)
	case !s.state.Reachable:
		return status.Error(codes.Unavailable, "nobody there")
	case s.refuse != nil:
		return s.refuse
	}
	f.asked = append(f.asked, what)
	if err := change(s); err != nil {
		return err
	}
	return after
}

func (f *fleet) CreateInstance(
	_ context.Context, shard string, r *nstancev1.CreateInstanceRequest,
) (made *nstancev1.InstanceStatus, err error) {
	err = f.call(shard, "create "+r.GetIdempotencyKey(), func(s *fakeShard) error {
		for _, i := range s.instances {
			if i.GetIdempotencyKey() == r.GetIdempotencyKey() {
				made = proto.CloneOf(i)
				return nil
			}
		}
		f.made++
		i := instance(fmt.Sprintf("knd%026d", f.made), true, running)
		i.IdempotencyKey, i.Group = r.GetIdempotencyKey(), r.GetGroup()
		if r.InstanceType != nil {
			i.InstanceType = r.GetInstanceType()
		}
		s.instances[i.GetId()] = i
		made = proto.CloneOf(i)
		return nil
	})
	if err != nil {
		made = nil
	}
	return made, err
}

func (f *fleet) DeleteInstance(_ context.Context, shard, id string) error {
	return f.call(shard, "delete "+id, func(s *fakeShard) error {
		if i, ok := s.instances[id]; ok && i.GetOnDemand() {
			i.Phase = deleted
		}
		return nil
	})
}

func (f *fleet) DeleteInstanceByKey(_ context.Context, shard, key string) error {
	return f.call(shard, "delete key", func(s *fakeShard) error {
		for _, i := range s.instances {
			if i.GetIdempotencyKey() == key {
				i.Phase = deleted
			}
		}
		return nil
	})
}

// Source tells of nothing: tests reconcile themselves.
func (f *fleet) Source(func(shards.Event) []reconcile.Request) source.Source { return nil }
