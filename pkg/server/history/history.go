package history

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/server/broadcast"
)

// Config is what a History needs. All fields are required.
type Config struct {
	Store object.Store
	Key   string // of the object
	// Epoch and Writer identify the term. Writer is unique per process start.
	Epoch  uint64
	Writer string
	// Readable returns an error for an epoch that can only be damage.
	Readable func(epoch uint64) error
	// Permit returns an error if the term may not write now.
	Permit  func(context.Context) error
	Timeout func() time.Duration // of each request to the store
	Now     func() time.Time
	Logger  *slog.Logger
}

func (c Config) check() error {
	for _, set := range []bool{
		c.Store != nil, c.Key != "", c.Epoch > 0, c.Writer != "", c.Readable != nil, c.Permit != nil, c.Timeout != nil,
		c.Now != nil, c.Logger != nil,
	} {
		if !set {
			return errors.New("history: a field of the config is missing")
		}
	}
	return nil
}

// History is the events of a shard as one term of leadership knows them. Safe for concurrent use.
type History struct {
	cfg     Config
	feed    broadcast.Feed[*fleet.Event]
	fresh   chan struct{} // buffered, 1: there are events that are not stored
	settled chan struct{} // closed when the first attempt to read the earlier events has ended

	mu       sync.Mutex
	ring     ring
	number   uint64 // of the last event of this term
	complete bool   // the events of earlier terms were read

	stored stored // used by Run, and then by Flush
}

// New returns the history of a term, which is empty until Run has read the events of earlier ones.
func New(cfg Config) (*History, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &History{cfg: cfg, fresh: make(chan struct{}, 1), settled: make(chan struct{}), ring: newRing()}, nil
}

// Record adds an event; it sets ID, and At if that is zero. A change that only repeats the last one
// of its subject is left out. It returns at once.
func (h *History) Record(e fleet.Event) {
	if e.At.IsZero() {
		e.At = h.cfg.Now()
	}
	e.At = e.At.UTC()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ring.repeated(&e) {
		return
	}
	h.number++
	e.ID = fleet.EventID{Epoch: h.cfg.Epoch, Number: h.number}
	added := newEntry(h.ring.explained(e))
	h.ring.add(added)
	h.feed.Publish(added.Event)
	select {
	case h.fresh <- struct{}{}:
	default: // already signalled
	}
}

// Events returns the events after an ID that match, in the order of their IDs. They must not be
// changed.
func (h *History) Events(after fleet.EventID, matches func(*fleet.Event) bool) []*fleet.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ring.after(after, matches)
}

// Follow subscribes to the events after an ID that match: first those that there are, then a nil as
// the end of these, then each as it is recorded. At most pending of these may be queued. Events of
// an earlier term that are found late come when they are found.
func (h *History) Follow(after fleet.EventID, matches func(*fleet.Event) bool, pending int) *broadcast.Reader[*fleet.Event] {
	wants := func(e *fleet.Event) bool { return after.Compare(e.ID) < 0 && matches(e) }
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.feed.Subscribe(wants, append(h.ring.after(after, matches), nil), pending)
}

func (r *ring) after(id fleet.EventID, matches func(*fleet.Event) bool) (found []*fleet.Event) {
	from, _ := slices.BinarySearchFunc(r.entries, id, func(e entry, id fleet.EventID) int {
		if e.ID.Compare(id) <= 0 {
			return -1
		}
		return 1
	})
	for _, e := range r.entries[from:] {
		if matches(e.Event) {
			found = append(found, e.Event)
		}
	}
	return found
}

// awaits is how long a caller waits for the events of earlier terms.
const awaits = 2 * time.Second

// Complete waits until the events of earlier terms are read, for a short while, and reports whether
// they are.
func (h *History) Complete(ctx context.Context) bool {
	late := time.NewTimer(awaits)
	defer late.Stop()
	select {
	case <-h.settled:
	case <-late.C:
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.complete
}

// merge adds events of earlier terms that are not known yet, and returns them.
func (h *History) merge(found []fleet.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := map[fleet.EventID]bool{}
	for _, e := range h.ring.entries {
		known[e.ID] = true
	}
	var added []entry
	for _, e := range found {
		if e.ID.Epoch < h.cfg.Epoch && !known[e.ID] {
			known[e.ID] = true
			added = append(added, newEntry(e))
		}
	}
	h.ring.add(added...)
	for _, e := range added {
		h.feed.Publish(e.Event)
	}
	h.complete = true
}

func valid(text string) string { return strings.ToValidUTF8(text, "?") }
