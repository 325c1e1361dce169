package admin

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// The kinds of watch events.
const (
	EventGroup     = "group"     // a group is, or has become, like this
	EventGroupGone = "groupGone" // there is no such group any more
	EventInstance  = "instance"  // a draining, deleting or deleted instance
	EventProblem   = "problem"   // something that a person may have to know
	// EventSnapshot ends what was there when the watch began; it comes again after
	// every reconnection, since events in between were missed. Problems have none.
	EventSnapshot = "snapshot"
	EventLost     = "lost" // a shard can't be watched for now; it is tried again
)

// Event is one thing that a watch saw.
type Event struct {
	Kind     string    `json:"kind"`
	Shard    string    `json:"shard"`
	Of       string    `json:"of,omitempty"`  // of snapshot and lost: groups | instances | problems
	Key      string    `json:"key,omitempty"` // of groupGone
	Group    *Group    `json:"group,omitempty"`
	Instance *Instance `json:"instance,omitempty"`
	Problem  *Problem  `json:"problem,omitempty"`
	Error    string    `json:"error,omitempty"` // of lost

	stream int // which of the streams of the same shard and kind it came on
}

// Problem is what a shard reports of itself.
type Problem struct {
	At         *time.Time `json:"at,omitempty"`
	Reason     string     `json:"reason"`
	Message    string     `json:"message"`
	Group      string     `json:"group,omitempty"`
	InstanceID string     `json:"instance_id,omitempty"`
}

// What a watch can be of.
const (
	WatchGroups    = "groups"
	WatchInstances = "instances"
	WatchProblems  = "problems"
)

// Watch follows the shards until ctx ends, which is no error, or until one says
// what no repetition can mend. It reconnects by itself, and keeps the client's
// identity renewed. see is called for one
// event at a time; its error ends the watch.
func (c *Client) Watch(ctx context.Context, shards []Shard, of []string, see func(Event) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	one := func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if err := see(e); err != nil {
			cancel(err)
		}
	}
	var all, keep sync.WaitGroup
	keep.Go(func() { c.keepIdentity(ctx, shards) })
	for _, s := range shards {
		for _, what := range of {
			w := watch{client: c, shard: s, of: what, see: one}
			all.Go(func() {
				if err := w.run(ctx); err != nil {
					cancel(err)
				}
			})
		}
	}
	all.Wait()
	cancel(nil) // keeps the cause there is
	keep.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// watch follows one stream of one shard.
type watch struct {
	client *Client
	shard  Shard
	of     string
	see    func(Event)
}

// steadyAfter is how long a stream must have held for the next break to count as
// the first one.
const steadyAfter = 10 * time.Second

func (w watch) run(ctx context.Context) error {
	// Each stream has a connection of its own: when one has to look for another
	// leader, the others find out for themselves.
	conn, err := w.client.connect(w.shard)
	if err != nil {
		return &ShardError{Shard: w.shard.ID, Err: err}
	}
	defer conn.Close()
	w.client.renewFirst(ctx, w.shard)
	for failures, hops, streams := 1, 0, 0; ; failures++ {
		target, err := conn.Target()
		if err != nil {
			return &ShardError{Shard: w.shard.ID, Err: err}
		}
		began := time.Now()
		streams++
		err = w.numbered(streams).stream(ctx, target.Conn)
		if ctx.Err() != nil {
			return nil
		}
		followed := conn.Failed(target, err)
		// The next stream shows the certificate of then, which may be another.
		conn.Drop(target)
		if followed && hops < maxHops {
			hops++
			continue
		}
		failure := &ShardError{Shard: w.shard.ID, Err: err}
		if !Transient(err) && Code(err) != codes.ResourceExhausted && !errors.Is(err, io.EOF) {
			return failure
		}
		w.see(Event{Kind: EventLost, Shard: w.shard.ID, Of: w.of, Error: failure.Error()})
		if hops = 0; time.Since(began) > steadyAfter {
			failures = 1
		}
		if retry.Wait(ctx, rpc.Backoff().Draw(failures, rand.Float64)) != nil {
			return nil
		}
	}
}

// numbered is w on its n-th stream.
func (w watch) numbered(n int) watch {
	see := w.see
	w.see = func(e Event) { e.stream = n; see(e) }
	return w
}

// maxHops is how many named leaders are followed before the next wait.
const maxHops = 2

func (w watch) stream(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := nstancev1.NewOperatorServiceClient(conn)
	switch w.of {
	case WatchGroups:
		stream, err := s.WatchGroups(ctx, &nstancev1.WatchGroupsRequest{})
		return pump(stream, err, w.group)
	case WatchInstances:
		stream, err := s.WatchInstances(ctx, &nstancev1.WatchInstancesRequest{})
		return pump(stream, err, w.instance)
	default:
		stream, err := s.WatchErrors(ctx, &nstancev1.WatchErrorsRequest{})
		return pump(stream, err, w.problem)
	}
}

func pump[T any](stream grpc.ServerStreamingClient[T], err error, see func(*T)) error {
	for err == nil {
		var m *T
		if m, err = stream.Recv(); err == nil {
			see(m)
		}
	}
	return err
}

func (w watch) group(m *nstancev1.WatchGroupsResponse) {
	switch m.GetType() {
	case nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END:
		w.see(Event{Kind: EventSnapshot, Shard: w.shard.ID, Of: w.of})
	case nstancev1.EventType_EVENT_TYPE_DELETE:
		w.see(Event{Kind: EventGroupGone, Shard: w.shard.ID, Key: m.GetKey()})
	case nstancev1.EventType_EVENT_TYPE_UPSERT:
		g := group(w.shard.ID, m.GetGroup())
		w.see(Event{Kind: EventGroup, Shard: w.shard.ID, Group: &g})
	case nstancev1.EventType_EVENT_TYPE_UNSPECIFIED: // of a later version
	}
}

func (w watch) instance(m *nstancev1.WatchInstancesResponse) {
	switch m.GetType() {
	case nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END:
		w.see(Event{Kind: EventSnapshot, Shard: w.shard.ID, Of: w.of})
	case nstancev1.EventType_EVENT_TYPE_UPSERT, nstancev1.EventType_EVENT_TYPE_DELETE:
		if m.GetInstance() != nil {
			i := instance(w.shard.ID, m.GetInstance())
			w.see(Event{Kind: EventInstance, Shard: w.shard.ID, Instance: &i})
		}
	case nstancev1.EventType_EVENT_TYPE_UNSPECIFIED: // of a later version
	}
}

func (w watch) problem(m *nstancev1.WatchErrorsResponse) {
	w.see(Event{Kind: EventProblem, Shard: w.shard.ID, Problem: &Problem{
		At: timeOf(m.GetAt()), Reason: m.GetReason(), Message: m.GetMessage(), Group: m.GetGroup(), InstanceID: m.GetInstanceId(),
	}})
}
