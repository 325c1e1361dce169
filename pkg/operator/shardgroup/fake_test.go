package shardgroup_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// fake are shards that behave, without a network: what a group is given it has, its etag
// changes with it, and who asks on condition of another one is refused.
type fake struct {
	mu     sync.Mutex
	shards map[string]*shard
	queues []func(shards.Event)
}

type shard struct {
	state   shards.State
	groups  map[string]*nstancev1.GroupStatus
	base    map[string]map[string]any // vars of a group's template
	living  map[string]bool
	hangs   chan struct{} // while it is open, calls get no answer
	refuses error
	races   int // so many changes are made by somebody else right before
	upserts []*nstancev1.UpsertGroupRequest
	deletes []string
	etags   int
}

func newFake(names ...string) *fake {
	f := &fake{shards: map[string]*shard{}}
	for _, name := range names {
		f.shards[name] = &shard{
			state:  shards.State{Reachable: true, Known: true, Synced: true},
			groups: map[string]*nstancev1.GroupStatus{}, base: map[string]map[string]any{}, living: map[string]bool{},
		}
	}
	return f
}

// change changes a shard, and tells of it and of all its groups.
func (f *fake) change(name string, edit func(*shard)) {
	f.mu.Lock()
	s := f.shards[name]
	edit(s)
	keys := slices.Collect(maps.Keys(s.groups))
	f.mu.Unlock()
	f.tell(shards.Event{Of: shards.OfShard, Shard: name})
	for _, key := range keys {
		f.tell(shards.Event{Of: shards.OfGroup, Shard: name, Group: key})
	}
}

// drop has a shard's group disappear.
func (f *fake) drop(name, key string) {
	f.change(name, func(s *shard) { delete(s.groups, key) })
	f.tell(shards.Event{Of: shards.OfGroup, Shard: name, Group: key})
}

func (f *fake) tell(e shards.Event) {
	f.mu.Lock()
	queues := slices.Clone(f.queues)
	f.mu.Unlock()
	for _, q := range queues {
		q(e)
	}
}

func (f *fake) upserts(name string) []*nstancev1.UpsertGroupRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.shards[name].upserts)
}

func (f *fake) deletes(name string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.shards[name].deletes)
}

func (f *fake) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.shards))
}

func (f *fake) State(name string) (shards.State, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.shards[name]
	if !ok {
		return shards.State{}, false
	}
	return s.state, true
}

func (f *fake) Group(name, key string) *nstancev1.GroupStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.shards[name]; s != nil && s.groups[key] != nil {
		return proto.CloneOf(s.groups[key])
	}
	return nil
}

func (f *fake) Instance(name, id string) *nstancev1.InstanceStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.shards[name]; s == nil || !s.living[id] {
		return nil
	}
	return &nstancev1.InstanceStatus{Id: id, Phase: nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING}
}

func (f *fake) Missing(name, _, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.shards[name]
	return s != nil && s.state.Synced && !s.living[id]
}

func (f *fake) Source(requests func(shards.Event) []reconcile.Request) source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.queues = append(f.queues, func(e shards.Event) {
			for _, req := range requests(e) {
				q.Add(req)
			}
		})
		return nil
	})
}

func (f *fake) UpsertGroup(
	ctx context.Context, name string, r *nstancev1.UpsertGroupRequest,
) (*nstancev1.UpsertGroupResponse, error) {
	g, err := f.upsert(ctx, name, r)
	if err != nil {
		return nil, err
	}
	f.tell(shards.Event{Of: shards.OfGroup, Shard: name, Group: r.GetKey()})
	return &nstancev1.UpsertGroupResponse{Group: g}, nil
}

func (f *fake) upsert(ctx context.Context, name string, r *nstancev1.UpsertGroupRequest) (*nstancev1.GroupStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.shards[name]
	s.upserts = append(s.upserts, r)
	if hangs := s.hangs; hangs != nil {
		f.mu.Unlock()
		defer f.mu.Lock()
		return nil, hang(ctx, hangs)
	}
	if s.refuses != nil {
		return nil, s.refuses
	}
	g := s.groups[r.GetKey()]
	if s.races > 0 && g != nil {
		s.races--
		s.touch(g)
	}
	switch {
	case r.IfEtag != nil && r.GetIfEtag() != g.GetEtag():
		return nil, status.Errorf(codes.Aborted, "if_etag: %q, have %q", r.GetIfEtag(), g.GetEtag())
	case g == nil && r.Template == nil:
		return nil, status.Error(codes.NotFound, "no such group")
	case g == nil:
		g = &nstancev1.GroupStatus{Key: r.GetKey()}
		s.groups[r.GetKey()] = g
	case g.GetIsStatic() && r.Template != nil && r.GetTemplate() != g.GetTemplate():
		return nil, status.Error(codes.FailedPrecondition, "template: set by static config")
	}
	s.apply(g, r)
	return proto.CloneOf(g), nil
}

func (s *shard) apply(g *nstancev1.GroupStatus, r *nstancev1.UpsertGroupRequest) {
	set(&g.Size, r.Size)
	set(&g.Template, r.Template)
	set(&g.InstanceType, r.InstanceType)
	set(&g.SubnetPool, r.SubnetPool)
	set(&g.MaxSurge, r.MaxSurge)
	if r.GetVars() != nil {
		all := maps.Clone(s.base[r.GetKey()])
		if all == nil {
			all = map[string]any{}
		}
		maps.Copy(all, r.GetVars().AsMap())
		g.Vars, _ = structpb.NewStruct(all)
	}
	g.Conditions = slices.DeleteFunc(g.Conditions, func(c *nstancev1.Condition) bool { return c.GetType() == "Removed" })
	for _, id := range r.GetRemove() {
		delete(s.living, id)
	}
	s.touch(g)
}

func (s *shard) touch(g *nstancev1.GroupStatus) {
	s.etags++
	g.Etag = fmt.Sprint("e", s.etags)
}

func set[T any](field, given *T) {
	if given != nil {
		*field = *given
	}
}

func hang(ctx context.Context, until <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-until:
		return errors.New("no leader answered in time")
	}
}

func (f *fake) DeleteGroup(ctx context.Context, name, key string) error {
	err := f.remove(ctx, name, key)
	f.tell(shards.Event{Of: shards.OfGroup, Shard: name, Group: key})
	return err
}

func (f *fake) remove(_ context.Context, name, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.shards[name]
	s.deletes = append(s.deletes, key)
	g := s.groups[key]
	switch {
	case s.refuses != nil:
		return s.refuses
	case g == nil:
		return nil
	case g.GetIsStatic():
		return status.Error(codes.FailedPrecondition, "set by static config")
	}
	g.Size = 0
	g.Conditions = append(g.Conditions, &nstancev1.Condition{Type: "Removed", Status: true, Reason: "GroupDeleted"})
	s.touch(g)
	return nil
}

// forget takes a shard out of the config.
func (f *fake) forget(name string) {
	f.mu.Lock()
	delete(f.shards, name)
	f.mu.Unlock()
	f.tell(shards.Event{Of: shards.OfShard, Shard: name})
}
