package operators_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/broadcast"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/outage"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// shard is a shard with fixed values.
type shard struct {
	mu        sync.Mutex
	groups    map[fleet.GroupKey]fleet.Group
	instances map[fleet.InstanceID]fleet.Instance
	health    map[fleet.InstanceID]operators.Health
	behind    map[fleet.InstanceID]bool // lack the newest version of their files
	capacity  map[string]operators.Capacity
	failing   map[fleet.GroupKey]fleet.CreatesFailing
	rotations map[fleet.GroupKey]fleet.Rotation
	problems  broadcast.Feed[fleet.Problem]
	trouble   fleet.Problem  // of every group
	left      fleet.GroupKey // a group without definition
	next      *fleet.Group   // returned by the next read
	asked     int            // calls of Instances.Group
	over      bool
	outage    outage.Outage
}

func (s *shard) outageNow() (o outage.Outage) {
	s.locked(func() { o = s.outage })
	return o
}

func (s *shard) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// desired are the shard's groups.
type desired struct {
	*shard
	operators.Groups // methods that watches do not use
}

func (s desired) All() (keys []fleet.GroupKey) {
	s.locked(func() {
		for k := range s.groups {
			keys = append(keys, k)
		}
		if s.left.Name != "" {
			keys = append(keys, s.left)
		}
	})
	slices.SortFunc(keys, fleet.GroupKey.Compare)
	return keys
}

func (s desired) Group(key fleet.GroupKey) (g fleet.Group, ok bool) {
	s.locked(func() {
		if g, ok = s.groups[key]; s.next != nil {
			s.groups[key], s.next = *s.next, nil
		}
	})
	return g, ok
}

// single is the shard's instances, one by one.
type single struct {
	*shard
	operators.OnDemand // methods that these tests do not use
}

func (s single) Find(_ context.Context, tenant string, id fleet.InstanceID) (fleet.Instance, error) {
	i, ok := s.Get(id)
	if !ok || i.Tenant != tenant {
		return fleet.Instance{}, rpc.NotFound.Errorf("no such instance %s", id)
	}
	return i, nil
}

func (s *shard) OfGroup(_ fleet.GroupKey, complete bool) (p fleet.Problem) {
	if !complete {
		s.locked(func() { p = s.trouble })
	}
	return p
}

func (s *shard) Follow(tenant string) *broadcast.Reader[fleet.Problem] {
	return s.problems.Subscribe(func(p fleet.Problem) bool { return p.Group.Tenant == tenant }, nil, operators.MaxPendingProblems)
}

func (s *shard) Instances() (all []fleet.Instance) {
	s.locked(func() {
		for _, i := range s.instances {
			all = append(all, i)
		}
	})
	slices.SortFunc(all, func(a, b fleet.Instance) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return all
}

func (s *shard) Group(key fleet.GroupKey) []fleet.Instance {
	s.locked(func() { s.asked++ })
	return slices.DeleteFunc(s.Instances(), func(i fleet.Instance) bool { return i.GroupKey() != key })
}

func (s *shard) Page(
	key fleet.GroupKey, after fleet.InstanceID, limit int, wanted func(fleet.Phase) bool,
) (page []fleet.Instance, more bool) {
	page = slices.DeleteFunc(s.Instances(), func(i fleet.Instance) bool {
		return i.Tenant != key.Tenant || key.Name != "" && i.Group != key.Name || i.ID <= after || !wanted(i.Phase)
	})
	return page[:min(limit, len(page))], len(page) > limit
}

func (s *shard) Get(id fleet.InstanceID) (i fleet.Instance, ok bool) {
	s.locked(func() { i, ok = s.instances[id] })
	return i, ok
}

func (s *shard) Malformed() []fleet.Malformed { return nil }

func (s *shard) Health(id fleet.InstanceID) (h operators.Health) {
	s.locked(func() { h = s.health[id] })
	return h
}

func (s *shard) filesUpToDate(i fleet.Instance, _ fleet.Group) (yes bool) {
	s.locked(func() { yes = !s.behind[i.ID] })
	return yes
}

func (s *shard) capacityOf(instanceType string) (c operators.Capacity, ok bool) {
	s.locked(func() { c, ok = s.capacity[instanceType] })
	return c, ok
}

func (s *shard) createsFailing(key fleet.GroupKey) (f fleet.CreatesFailing, failing bool) {
	s.locked(func() { f, failing = s.failing[key] })
	return f, failing
}

func (s *shard) put(i fleet.Instance) {
	s.locked(func() { s.instances[i.ID] = i })
}

// fixture is a service for a shard, inside a test's bubble.
type fixture struct {
	*shard
	t           *testing.T
	service     *operators.Service
	watches     *operators.Watches
	transitions *operators.Transitions
	end         context.CancelFunc // of the term
	cut         chan struct{}      // closed: all callers are refused
	open        atomic.Int64       // streams
}

func (f *fixture) join(context.Context, pki.Caller) (cut <-chan struct{}, leave func(), err error) {
	f.open.Add(1)
	return f.cut, func() { f.open.Add(-1) }, nil
}

// epoch is the fixture's term.
const epoch = 7

func newFixture(t *testing.T) *fixture {
	ctx, end := context.WithCancel(t.Context())
	s := &shard{
		groups: map[fleet.GroupKey]fleet.Group{}, instances: map[fleet.InstanceID]fleet.Instance{},
		health: map[fleet.InstanceID]operators.Health{}, capacity: map[string]operators.Capacity{},
		failing: map[fleet.GroupKey]fleet.CreatesFailing{}, rotations: map[fleet.GroupKey]fleet.Rotation{},
	}
	f := &fixture{shard: s, t: t, end: end, cut: make(chan struct{}), transitions: operators.NewTransitions(time.Now)}
	parts := operators.Shard{
		Admit: func(string) error { return nil }, Groups: desired{shard: s}, Instances: s, OnDemand: single{shard: s},
		Health: s.Health, FilesUpToDate: s.filesUpToDate, Problems: s, Capacity: s.capacityOf, CreatesFailing: s.createsFailing,
		Rotation: s.rotationOf, Transitions: f.transitions, Outage: s.outageNow,
		Provider: config.Provider{Kind: "aws", Region: "eu-central-1", Zone: "eu-central-1a"},
	}
	f.watches = operators.NewWatches(operators.WatchesConfig{
		Shard: parts, Done: ctx.Done(), Epoch: epoch, Writer: "a.run1", Now: time.Now, Join: f.join,
	})
	parts.Watches = f.watches
	led := func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.over {
			return rpc.Unavailable.Errorf("another server leads")
		}
		return nil
	}
	f.service = operators.New(operators.Config{
		Shard: func() (operators.Shard, error) { return parts, led() },
	})
	done := make(chan struct{})
	go func() { defer close(done); f.watches.Run(ctx) }()
	t.Cleanup(func() { end(); <-done })
	return f
}

func (f *fixture) group(tenant, name string, size int) fleet.GroupKey {
	key := fleet.GroupKey{Tenant: tenant, Name: name}
	f.locked(func() { f.groups[key] = fleet.Group{Key: key, Size: size} })
	return key
}

func record(n int, tenant, group string, phase fleet.Phase) fleet.Instance {
	return fleet.Instance{ID: fleet.InstanceID(fmt.Sprintf("knd%026d", n)), Tenant: tenant, Group: group, Phase: phase}
}

// wire is the server's end of a stream. Its reader receives until it is stopped; then a send
// blocks until the stream ends, like gRPC's.
type wire[T any] struct {
	grpc.ServerStream
	ctx  context.Context
	stop context.CancelFunc // the stream's end
	err  error              // of the handler, once done is closed
	done chan struct{}

	mu      sync.Mutex
	sent    []*T
	stopped bool
}

func (w *wire[T]) Context() context.Context     { return w.ctx }
func (w *wire[T]) SendHeader(metadata.MD) error { return nil }
func (w *wire[T]) Send(m *T) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		w.mu.Unlock()
		<-w.ctx.Done()
		w.mu.Lock()
		return errors.New("the stream is done")
	}
	w.sent = append(w.sent, m)
	return nil
}

func (w *wire[T]) halt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
}

// take returns what was sent since the last call.
func (w *wire[T]) take() []*T {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.sent
	w.sent = nil
	return out
}

// open opens a watch as an operator.
func open[T any](f *fixture, tenant, id string, call func(grpc.ServerStreamingServer[T]) error) *wire[T] {
	ctx, stop := context.WithCancel(rpc.WithCaller(f.t.Context(), pki.Caller{Role: pki.RoleOperator, Tenant: tenant, ID: id}))
	w := &wire[T]{ctx: ctx, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer stop() // gRPC ends a stream when its handler returns
		w.err = call(w)
	}()
	f.t.Cleanup(func() { stop(); <-w.done })
	return w
}

func (f *fixture) watchGroups(tenant string) *wire[nstancev1.WatchGroupsResponse] {
	return open(f, tenant, "opr", func(s grpc.ServerStreamingServer[nstancev1.WatchGroupsResponse]) error {
		return f.service.WatchGroups(&nstancev1.WatchGroupsRequest{}, s)
	})
}

func (f *fixture) watchInstances(tenant string) *wire[nstancev1.WatchInstancesResponse] {
	return f.resumeInstances(tenant, &nstancev1.WatchInstancesRequest{})
}

func (f *fixture) resumeInstances(tenant string, req *nstancev1.WatchInstancesRequest) *wire[nstancev1.WatchInstancesResponse] {
	return open(f, tenant, "opr", func(s grpc.ServerStreamingServer[nstancev1.WatchInstancesResponse]) error {
		return f.service.WatchInstances(req, s)
	})
}

func (f *fixture) watchErrors(tenant string) *wire[nstancev1.WatchErrorsResponse] {
	return open(f, tenant, "opr", func(s grpc.ServerStreamingServer[nstancev1.WatchErrorsResponse]) error {
		return f.service.WatchErrors(&nstancev1.WatchErrorsRequest{}, s)
	})
}

// told formats group events.
func told(events []*nstancev1.WatchGroupsResponse) (words []string) {
	for _, e := range events {
		switch e.GetType() {
		case nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END:
			words = append(words, "end")
		case nstancev1.EventType_EVENT_TYPE_DELETE:
			words = append(words, "-"+e.GetKey())
		default:
			words = append(words, fmt.Sprintf("%s:%d/%d", e.GetGroup().GetKey(), e.GetGroup().GetActualSize(), e.GetGroup().GetSize()))
		}
	}
	return words
}

// seen formats instance events.
func seen(events []*nstancev1.WatchInstancesResponse) (words []string) {
	for _, e := range events {
		if e.GetType() == nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END {
			words = append(words, map[bool]string{true: "resumed", false: "end"}[e.GetResumed()])
			continue
		}
		phase := strings.ToLower(strings.TrimPrefix(e.GetInstance().GetPhase().String(), "INSTANCE_PHASE_"))
		words = append(words, strings.TrimLeft(e.GetInstance().GetId(), "knd0")+" "+phase)
	}
	return words
}

func same(t *testing.T, have []string, want ...string) {
	t.Helper()
	if !slices.Equal(have, want) {
		t.Errorf("told %q, want %q", have, want)
	}
}
