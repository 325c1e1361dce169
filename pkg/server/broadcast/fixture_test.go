package broadcast_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/server/broadcast"
)

type (
	hub    = broadcast.Hub[string, string]
	reader = broadcast.Subscription[string, string]
)

// world is what a hub follows: values by key, and how often each was looked at.
type world struct {
	mu     sync.Mutex
	values map[string]string
	looks  map[string]int
	onLook func(key string) // called before the value is read
}

func newWorld(values map[string]string) *world {
	return &world{values: values, looks: map[string]int{}, onLook: func(string) {}}
}

func (w *world) keys() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.values))
}

func (w *world) look(key, _ string, _ bool) (string, bool) {
	w.onLook(key)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks[key]++
	v, ok := w.values[key]
	return v, ok
}

func (w *world) set(key, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.values[key] = value
}

func (w *world) remove(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.values, key)
}

func (w *world) lookedAt(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks[key]
}

// run starts a hub that follows w until the test's bubble ends.
func (w *world) run(t *testing.T, tweaks ...func(*broadcast.Config[string, string])) *hub {
	cfg := broadcast.Config[string, string]{
		Keys: w.keys, Look: w.look, Digest: func(v string) broadcast.Digest { return sha256.Sum256([]byte(v)) },
		Compare: cmp.Compare[string], Initial: func(string) bool { return true }, TellGone: true, MaxPending: 1000,
	}
	for _, tweak := range tweaks {
		tweak(&cfg)
	}
	h := broadcast.NewHub(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); h.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return h
}

func anything(string) bool { return true }

// read returns all that a reader is to be told now, one word per item.
func read(t *testing.T, s *reader) (words []string) {
	t.Helper()
	for {
		item, ok, err := s.Take()
		switch {
		case err != nil:
			t.Fatalf("the reader is cut off: %v", err)
		case !ok:
			return words
		case item.End:
			words = append(words, "end")
		case item.Gone:
			words = append(words, "-"+item.Key)
		default:
			words = append(words, item.Key+"="+item.Value)
		}
	}
}

func expect(t *testing.T, s *reader, want ...string) {
	t.Helper()
	synctest.Wait()
	if have := read(t, s); !slices.Equal(have, want) {
		t.Errorf("read %v, want %v", have, want)
	}
}

// pass lets the hub's pause pass.
func pass() {
	time.Sleep(time.Second)
	synctest.Wait()
}
