package client

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// What a watch can be of.
const (
	WatchGroups       = "groups"
	WatchInstances    = "instances"     // draining, deleting and deleted ones
	WatchAllInstances = "all-instances" // of every phase
	WatchProblems     = "problems"
)

// EventKind says what a watch saw.
type EventKind int

// The kinds of events.
const (
	Changed EventKind = iota // it is, or has become, like this
	Gone                     // there is none of that key any more
	// Synced ends what was there when the watch began. It comes again after every
	// reconnection, since events in between were missed; ahead of it comes what has
	// changed, or all there is, and Gone for what was there before and is not any
	// more. Problems have none.
	Synced
	Lost // the shard can't be watched for now; it is tried again
)

// Event is one thing that a watch saw.
type Event struct {
	Kind  EventKind
	Shard string
	Of    string // groups | instances | all-instances | problems
	Key   string // a group's key or an instance's id
	// Missed, of Gone: it went while the shard could not be watched.
	Missed bool
	// Resumed, of Synced: only what changed since the connection before was told.
	Resumed bool

	Group    *nstancev1.GroupStatus         // of Changed
	Instance *nstancev1.InstanceStatus      // of Changed
	Problem  *nstancev1.WatchErrorsResponse // of Changed
	Err      error                          // of Lost: a ShardError
}

// Watch follows the shards until ctx ends, which is no error, or until one says
// what no repetition can mend. It reconnects by itself. see is called for one
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
	var all sync.WaitGroup
	for _, s := range shards {
		for _, what := range of {
			w := &watch{client: c, shard: s, of: what, see: one, known: map[string]bool{}}
			all.Go(func() {
				if err := w.run(ctx); err != nil {
					cancel(err)
				}
			})
		}
	}
	all.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// watch follows one kind of thing of one shard, stream after stream.
type watch struct {
	client *Client
	shard  Shard
	of     string
	see    func(Event)
	place  string          // in the streams of instances, to go on from; empty: none
	known  map[string]bool // what is there, by key, as far as it was seen
	shown  map[string]bool // what the snapshot of this stream has shown; nil: it is whole
}

func (w *watch) run(ctx context.Context) error {
	// Each stream has a connection of its own: when one has to look for another
	// leader, the others find out for themselves.
	conn, err := w.client.connect(w.shard)
	if err != nil {
		return &ShardError{Shard: w.shard.ID, Err: err}
	}
	defer conn.Close()
	w.client.cfg.Before(ctx, w.shard)
	for failures, hops := 1, 0; ; failures++ {
		target, err := conn.Target()
		if err != nil {
			return &ShardError{Shard: w.shard.ID, Err: err}
		}
		began := time.Now()
		err = w.stream(ctx, target.Conn)
		if ctx.Err() != nil {
			return nil
		}
		followed := conn.Failed(target, err)
		// The next stream shows the certificate of then, which may be another.
		conn.Drop(target)
		if followed && hops < rpc.MaxHops {
			hops++
			continue
		}
		failure := &ShardError{Shard: w.shard.ID, Err: err}
		if !Transient(err) && status.Code(err) != codes.ResourceExhausted && !errors.Is(err, io.EOF) {
			return failure
		}
		w.see(Event{Kind: Lost, Shard: w.shard.ID, Of: w.of, Err: failure})
		if hops = 0; time.Since(began) > rpc.SteadyAfter {
			failures = 1
		}
		if retry.Wait(ctx, rpc.Backoff().Draw(failures, w.client.cfg.Random)) != nil {
			return nil
		}
	}
}

func (w *watch) stream(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.shown = map[string]bool{}
	s := nstancev1.NewOperatorServiceClient(conn)
	switch w.of {
	case WatchGroups:
		stream, err := s.WatchGroups(ctx, &nstancev1.WatchGroupsRequest{})
		return receive(stream, err, w.group)
	case WatchInstances, WatchAllInstances:
		stream, err := s.WatchInstances(ctx, &nstancev1.WatchInstancesRequest{All: w.of == WatchAllInstances, ResumeToken: w.place})
		err = receive(stream, err, w.instance)
		if status.Code(err) == codes.InvalidArgument && w.place != "" {
			w.place, err = "", status.Error(codes.Unavailable, "a place in the stream of another version: "+status.Convert(err).Message())
		}
		return err
	default:
		stream, err := s.WatchErrors(ctx, &nstancev1.WatchErrorsRequest{})
		return receive(stream, err, func(m *nstancev1.WatchErrorsResponse) {
			w.see(Event{Kind: Changed, Shard: w.shard.ID, Of: w.of, Problem: m})
		})
	}
}

func receive[T any](stream grpc.ServerStreamingClient[T], err error, see func(*T)) error {
	for err == nil {
		var m *T
		if m, err = stream.Recv(); err == nil {
			see(m)
		}
	}
	return err
}

func (w *watch) group(m *nstancev1.WatchGroupsResponse) {
	switch m.GetType() {
	case nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END:
		w.synced(false)
	case nstancev1.EventType_EVENT_TYPE_DELETE:
		w.gone(m.GetKey(), false)
	case nstancev1.EventType_EVENT_TYPE_UPSERT:
		w.changed(Event{Key: m.GetGroup().GetKey(), Group: m.GetGroup()}, true)
	case nstancev1.EventType_EVENT_TYPE_UNSPECIFIED: // of a later version
	}
}

func (w *watch) instance(m *nstancev1.WatchInstancesResponse) {
	w.place = m.GetResumeToken()
	switch i := m.GetInstance(); m.GetType() {
	case nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END:
		w.synced(m.GetResumed())
	case nstancev1.EventType_EVENT_TYPE_UPSERT, nstancev1.EventType_EVENT_TYPE_DELETE:
		if i != nil {
			w.changed(Event{Key: i.GetId(), Instance: i}, i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_DELETED)
		}
	case nstancev1.EventType_EVENT_TYPE_UNSPECIFIED: // of a later version
	}
}

// changed tells of something, and with stays expects it in the next snapshot.
func (w *watch) changed(e Event, stays bool) {
	e.Kind, e.Shard, e.Of = Changed, w.shard.ID, w.of
	if w.shown != nil {
		w.shown[e.Key] = true
	}
	w.known[e.Key] = true
	if !stays {
		delete(w.known, e.Key)
	}
	w.see(e)
}

func (w *watch) gone(key string, missed bool) {
	delete(w.known, key)
	w.see(Event{Kind: Gone, Shard: w.shard.ID, Of: w.of, Key: key, Missed: missed})
}

// synced ends a snapshot: what it does not show is gone since the stream before,
// unless it shows only what has changed since then.
func (w *watch) synced(resumed bool) {
	if w.shown == nil {
		return // it is whole already
	}
	for _, key := range slices.Sorted(maps.Keys(w.known)) {
		if !resumed && !w.shown[key] {
			w.gone(key, true)
		}
	}
	w.shown = nil
	w.see(Event{Kind: Synced, Shard: w.shard.ID, Of: w.of, Resumed: resumed})
}
