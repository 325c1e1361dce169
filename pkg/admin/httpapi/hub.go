package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Feed follows shards until ctx ends; see admin.Client.WatchState.
type Feed interface {
	WatchState(ctx context.Context, shards []client.Shard, of []string, see func(admin.Event) error) error
}

// maxKept is the number of events that a stream can be resumed over.
const maxKept = 10000

// hub follows all shards once, for all streams: it keeps the present state, for streams that
// begin, and the last events, for streams that are resumed. It begins with the first stream.
type hub struct {
	cfg Config

	mu      sync.Mutex
	running bool
	closed  bool
	stop    context.CancelFunc
	failed  error            // why the last run ended
	runs    int              // ids of one run say nothing in another
	state   map[string]entry // by what the event is about
	past    history          // which events of the shards are part of it
	kept    []entry          // the last events, oldest first
	next    uint64           // sequence of the next event
	changed chan struct{}    // closed with the next event
}

// entry is one event.
type entry struct {
	seq   uint64
	kind  string
	of    string // groups | instances | problems | events
	shard string
	data  []byte
}

// last is 1 for what a state ends with: which shards are watched.
func (x entry) last() int {
	if x.kind == admin.EventSnapshot || x.kind == admin.EventLost {
		return 1
	}
	return 0
}

func newHub(cfg Config) *hub {
	return &hub{cfg: cfg, stop: func() {}, state: map[string]entry{}, next: 1, changed: make(chan struct{})}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.stop()
	h.wake()
}

// start begins to follow the shards, unless that is under way.
func (h *hub) start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running || h.closed {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.running, h.stop, h.failed = true, cancel, nil
	h.state, h.kept, h.past = map[string]entry{}, nil, newHistory()
	h.runs++
	go func() {
		of := []string{client.WatchGroupsWithoutVars, client.WatchAllInstances, client.WatchProblems, client.WatchEvents}
		err := h.cfg.Service.WatchState(ctx, h.cfg.Shards, of, h.see)
		h.mu.Lock()
		defer h.mu.Unlock()
		if err != nil {
			h.cfg.Logger.Error("the shards can't be watched", slog.Any("error", err))
		}
		h.running, h.failed = false, err
		h.wake()
		cancel()
	}()
}

// wake has all streams look again. The caller holds h.mu.
func (h *hub) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// see takes one event of the shards.
func (h *hub) see(e admin.Event) error {
	e.Of = strings.TrimSuffix(strings.TrimPrefix(e.Of, "all-"), "-without-vars")
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, due := range h.past.due(e) {
		if err := h.publish(due); err != nil {
			return err
		}
	}
	h.wake()
	return nil
}

// publish passes one event on to the streams. The caller holds h.mu.
func (h *hub) publish(e admin.Event) error {
	key, of, stays := about(e)
	if _, known := h.state[key]; !stays && !known && e.Kind == admin.EventInstance {
		return nil // a tombstone of an instance that no stream has seen
	}
	if e.Kind == admin.EventLost && of == client.WatchProblems {
		h.forgetProblems(e.Shard) // those that last are sent again
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	x := entry{seq: h.next, kind: e.Kind, of: of, shard: e.Shard, data: data}
	h.next++
	if stays {
		h.state[key] = x
		if e.Kind == admin.EventHappened {
			delete(h.state, h.past.add(e.Shard, e.Happened.GetId(), key))
		}
	} else {
		delete(h.state, key)
	}
	if h.kept = append(h.kept, x); len(h.kept) > 2*maxKept {
		h.kept = slices.Clone(h.kept[len(h.kept)-maxKept:])
	}
	return nil
}

func (h *hub) forgetProblems(shard string) {
	for key, x := range h.state {
		if x.kind == admin.EventProblem && x.shard == shard {
			delete(h.state, key)
		}
	}
}

// about returns what an event is about, of which kind that is, and whether it is part of the
// state from now on.
func about(e admin.Event) (key, of string, stays bool) {
	id := func(of string, parts ...string) string {
		return of + "\x00" + e.Shard + "\x00" + strings.Join(parts, "\x00")
	}
	switch e.Kind {
	case admin.EventGroup:
		return id("group", e.Group.GetKey()), client.WatchGroups, true
	case admin.EventGroupGone:
		return id("group", e.Key), client.WatchGroups, false
	case admin.EventInstance:
		stays = e.Instance.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
		return id("instance", e.Instance.GetId()), client.WatchInstances, stays
	case admin.EventInstanceGone:
		return id("instance", e.Key), client.WatchInstances, false
	case admin.EventProblem:
		p := e.Problem
		return id("problem", p.GetReason(), p.GetGroup(), p.GetInstanceId()), client.WatchProblems, !p.GetOver()
	case admin.EventHappened:
		return id("event", e.Happened.GetId()), client.WatchEvents, true
	default: // whether the shard is watched
		return id("watched", e.Of), e.Of, true
	}
}

// batch is what a stream sends next.
type batch struct {
	entries []entry
	whole   bool          // the present state, instead of what follows the last batch
	next    uint64        // position after it
	run     int           // of the hub
	changed chan struct{} // closed when there is more
	closed  bool
	failed  error
}

// after returns what follows a position of a run, or the whole state if that is not kept.
func (h *hub) after(run int, position uint64) batch {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := batch{next: h.next, run: h.runs, changed: h.changed, closed: h.closed, failed: h.failed}
	oldest := h.next - uint64(len(h.kept))
	if run == h.runs && position >= oldest && position <= h.next {
		b.entries = slices.Clone(h.kept[position-oldest:])
		return b
	}
	b.whole = true
	for _, x := range h.state {
		b.entries = append(b.entries, x)
	}
	slices.SortFunc(b.entries, func(x, y entry) int { return cmp.Or(cmp.Compare(x.last(), y.last()), cmp.Compare(x.seq, y.seq)) })
	return b
}

// id is the id of an event after which a stream can be resumed.
func (h *hub) id(run int, position uint64) string {
	return h.cfg.Boot + "-" + strconv.Itoa(run) + "-" + strconv.FormatUint(position, 10)
}

// parse parses the id of an event of this process; run is 0 for others.
func (h *hub) parse(id string) (run int, position uint64) {
	parts := strings.Split(id, "-")
	if len(parts) != 3 || parts[0] != h.cfg.Boot {
		return 0, 0
	}
	run, err := strconv.Atoi(parts[1])
	position, err2 := strconv.ParseUint(parts[2], 10, 64)
	if err != nil || err2 != nil {
		return 0, 0
	}
	return run, position
}
