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
	"google.golang.org/protobuf/proto"

	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// What to watch.
const (
	WatchGroups = "groups" // without their instances
	// WatchGroupsWithoutVars: groups without vars, too, which may be most of them.
	WatchGroupsWithoutVars = "groups-without-vars"
	WatchInstances         = "instances"     // draining, deleting and deleted ones
	WatchAllInstances      = "all-instances" // of every phase
	WatchProblems          = "problems"
	// WatchEvents: what the shards decided, and which changes they accepted. It begins with all that
	// are kept; see also Client.WatchEvents.
	WatchEvents = "events"
)

// EventKind is the kind of an event.
type EventKind int

// Kinds of events.
const (
	Changed EventKind = iota // new or changed
	Gone                     // removed
	// Synced ends the snapshot at the start of a watch. It is sent again after every
	// reconnection, since events in between were missed; before it come the changes since, or
	// the full snapshot, and Gone for what was removed. Problems have no Synced.
	Synced
	Lost // the shard can't be watched now; it is retried
)

// Event is one event of a watch.
type Event struct {
	Kind  EventKind
	Shard string
	Of    string // groups | groups-without-vars | instances | all-instances | problems | events
	Key   string // a group's key, or the ID of an instance or an event
	// Missed, of Gone: it was removed while the shard was not watched.
	Missed bool
	// Resumed, of Synced: only changes since the previous connection were sent.
	Resumed bool
	// EarlierMissing, of Synced of events: those of earlier leaders can't be read now.
	EarlierMissing bool

	Group    *nstancev1.GroupStatus         // of Changed
	Instance *nstancev1.InstanceStatus      // of Changed
	Problem  *nstancev1.WatchErrorsResponse // of Changed
	Happened *nstancev1.Event               // of Changed
	Err      error                          // of Lost: a ShardError
}

// Watch follows the shards until ctx ends, which is no error, or until a shard returns a
// permanent error. It reconnects by itself. see is called for one event at a time; its error
// ends the watch.
func (c *Client) Watch(ctx context.Context, shards []Shard, of []string, see func(Event) error) error {
	var watches []*watch
	for _, s := range shards {
		for _, what := range of {
			watches = append(watches, &watch{
				client: c, shard: s, of: what, events: &nstancev1.WatchEventsRequest{}, known: map[string]bool{},
			})
		}
	}
	return watchAll(ctx, watches, see)
}

// watchAll runs watches until ctx ends, or until one ends with an error.
func watchAll(ctx context.Context, watches []*watch, see func(Event) error) error {
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
	for _, w := range watches {
		w.see = one
		all.Go(func() {
			if err := w.run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// watch follows one kind of object in one shard, across streams.
type watch struct {
	client *Client
	shard  Shard
	of     string
	see    func(Event)
	events *nstancev1.WatchEventsRequest // of WatchEvents
	place  string                        // where instance and event streams resume; empty: from the beginning
	known  map[string]bool               // known objects, by key
	shown  map[string]bool               // objects shown by this stream's snapshot; nil: it has ended
	begun  bool                          // an address has led to a server, or may have
	astray int                           // attempts in a row that an address led elsewhere
}

func (w *watch) run(ctx context.Context) error {
	// Each stream has its own connection, so that each finds a new leader by itself.
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
		err = target.Explain(err)
		followed := conn.Failed(target, err)
		// The next stream uses the current certificate.
		conn.Drop(target)
		if followed && hops < rpc.MaxHops {
			hops++
			continue
		}
		failure := &ShardError{Shard: w.shard.ID, Err: err}
		if w.hopeless(err) {
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

// hopeless reports whether a failed stream is not to be opened again.
func (w *watch) hopeless(err error) bool {
	if !Transient(err) && status.Code(err) != codes.ResourceExhausted && !errors.Is(err, io.EOF) {
		return true
	}
	if !rpc.Misdirected(err) {
		w.begun, w.astray = true, 0
		return false
	}
	w.astray++
	return w.client.cfg.GiveUp && !w.begun && w.astray >= len(w.shard.Addrs)
}

func (w *watch) stream(ctx context.Context, conn grpc.ClientConnInterface) error {
	// Without a deadline: otherwise the server ends the stream at the same moment as the caller does,
	// and its error may come first.
	caller := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(caller))
	defer cancel()
	defer context.AfterFunc(caller, cancel)()
	w.shown = map[string]bool{}
	s := nstancev1.NewOperatorServiceClient(conn)
	switch w.of {
	case WatchGroups, WatchGroupsWithoutVars:
		stream, err := s.WatchGroups(ctx, &nstancev1.WatchGroupsRequest{OmitInstances: true, OmitVars: w.of == WatchGroupsWithoutVars})
		return receive(stream, err, w.group)
	case WatchInstances, WatchAllInstances:
		stream, err := s.WatchInstances(ctx, &nstancev1.WatchInstancesRequest{All: w.of == WatchAllInstances, ResumeToken: w.place})
		err = receive(stream, err, w.instance)
		if status.Code(err) == codes.InvalidArgument && w.place != "" {
			w.place, err = "", status.Error(codes.Unavailable, "the resume token is of another version: "+status.Convert(err).Message())
		}
		return err
	case WatchEvents:
		req := proto.CloneOf(w.events)
		req.AfterId = w.place
		stream, err := s.WatchEvents(ctx, req)
		return receive(stream, err, w.event)
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

// changed passes on a change. stays: the object is expected in the next snapshot.
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

// synced ends a snapshot: what it does not show was removed since the previous stream, unless
// it shows only changes since then.
func (w *watch) synced(resumed bool) {
	if w.shown == nil {
		return // the snapshot has already ended
	}
	for _, key := range slices.Sorted(maps.Keys(w.known)) {
		if !resumed && !w.shown[key] {
			w.gone(key, true)
		}
	}
	w.shown = nil
	w.see(Event{Kind: Synced, Shard: w.shard.ID, Of: w.of, Resumed: resumed})
}
