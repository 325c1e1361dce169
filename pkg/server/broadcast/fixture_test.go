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

// fixture is the source of a hub: values by key, and how often each was read.
type fixture struct {
	mu     sync.Mutex
	values map[string]string
	looks  map[string]int
	onLook func(key string) // called before the value is read
}

func newFixture(values map[string]string) *fixture {
	return &fixture{values: values, looks: map[string]int{}, onLook: func(string) {}}
}

func (f *fixture) keys() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.values))
}

func (f *fixture) look(key, _ string, _ bool) (string, bool) {
	f.onLook(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks[key]++
	v, ok := f.values[key]
	return v, ok
}

func (f *fixture) set(key, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.values[key] = value
}

func (f *fixture) remove(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.values, key)
}

func (f *fixture) lookedAt(key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks[key]
}

// run starts a hub that follows f until the test's bubble ends.
func (f *fixture) run(t *testing.T, tweaks ...func(*broadcast.Config[string, string])) *hub {
	cfg := broadcast.Config[string, string]{
		Keys: f.keys, Look: f.look, Digest: func(v string) broadcast.Digest { return sha256.Sum256([]byte(v)) },
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

// read returns all items available to a reader, one word per item.
func read(t *testing.T, s *reader) (words []string) {
	t.Helper()
	for {
		item, ok, err := s.Next()
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

// pass waits for the hub's pause.
func pass() {
	time.Sleep(time.Second)
	synctest.Wait()
}
