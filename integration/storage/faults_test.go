//go:build integration

package storage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/integration/containers"
	"github.com/nstance/nstance/pkg/object"
)

// back bounds the time until a store answers again.
const back = 3 * time.Minute

// writer increments the number in one object, as its only writer.
type writer struct {
	store    object.Store
	key      string
	acked    int // the last number of which a write was acknowledged
	unknowns int
}

// write increments until ctx ends. After a write with an unknown outcome it reads the object, which
// must have that number or the one before, and nothing older.
func (w *writer) write(ctx context.Context) error {
	var etag object.ETag
	for n := 1; ctx.Err() == nil; n++ {
		pre := object.IfMatch(etag)
		if n == 1 {
			pre = object.IfAbsent()
		}
		put, err := w.store.Put(context.WithoutCancel(ctx), w.key, []byte(strconv.Itoa(n)), pre)
		switch {
		case err == nil:
			etag, w.acked = put, n
			continue
		case !errors.Is(err, object.ErrUnknown):
			return fmt.Errorf("put %s of %d over %d: %w", w.key, n, n-1, err)
		}
		w.unknowns++
		found, at, err := w.read(ctx)
		if err != nil {
			return err
		}
		if found != n && found != n-1 {
			return fmt.Errorf("%s has %d after %d was kept and %d was sent", w.key, found, n-1, n)
		}
		n, etag, w.acked = found, at, found
	}
	return nil
}

// read reads the number, as soon as the store answers; 0: there is no object.
func (w *writer) read(ctx context.Context) (int, object.ETag, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), back)
	defer cancel()
	for {
		o, err := w.store.Get(ctx, w.key)
		switch {
		case err == nil:
			n, err := strconv.Atoi(string(o.Body))
			return n, o.ETag, err
		case errors.Is(err, object.ErrNotFound):
			return 0, "", nil
		case ctx.Err() != nil:
			return 0, "", fmt.Errorf("read %s: %w", w.key, err)
		}
	}
}

// TestKilled: a store that is killed during writes keeps every acknowledged one, and an
// unacknowledged one is either applied or not.
func TestKilled(t *testing.T) {
	each(t, containers.Data{}, func(w *containers.World, s *containers.Store, _ product) {
		store := w.Bucket(s, "killed")
		ctx, stop := context.WithCancel(w.Context())
		defer stop()
		writers := make([]*writer, 4)
		errs := make([]error, len(writers))
		var writing sync.WaitGroup
		for n := range writers {
			writers[n] = &writer{store: store, key: fmt.Sprintf("counter/%d", n)}
			writing.Go(func() { errs[n] = writers[n].write(ctx) })
		}
		for kill := range 4 {
			// After another number of writes each time, and so at another moment of a write.
			w.Eventually(back, "it is written to", written(store, 5*(kill+1)))
			w.Must(s.Signal(w.Context(), "KILL"))
			w.Must(s.Ended(w.Context()))
			w.Must(s.Start(w.Context()))
			w.Eventually(back, "it answers again", answers(store))
		}
		stop()
		writing.Wait()
		w.Must(errors.Join(errs...))
		unknowns := 0
		for _, each := range writers {
			n, _, err := each.read(w.Context())
			if err != nil || n != each.acked {
				w.Errorf("%s has %d (%v), want %d, which was acknowledged", each.key, n, err, each.acked)
			}
			unknowns += each.unknowns
		}
		if unknowns == 0 {
			w.Error("no write was under way at any of the kills")
		}
		w.Logf("%d writes got no answer", unknowns)
	})
}

// frozen bounds a request to a frozen store: long enough for it to be in flight on a machine
// under load.
const frozen = 15 * time.Second

// TestPaused: a write to a frozen store has no known outcome; when the store continues, it may be
// applied, but not over a newer one.
func TestPaused(t *testing.T) {
	each(t, containers.Data{}, func(w *containers.World, s *containers.Store, _ product) {
		store := w.Bucket(s, "paused")
		first, err := store.Put(w.Context(), "k", []byte("first"), object.IfAbsent())
		w.Must(err)
		w.Must(s.Pause(w.Context()))
		short, cancel := context.WithTimeout(w.Context(), frozen)
		defer cancel()
		_, late := store.Put(short, "k", []byte("late"), object.IfMatch(first))
		if !errors.Is(late, object.ErrUnknown) || !errors.Is(late, context.DeadlineExceeded) {
			w.Errorf("a write to a frozen store: %v", late)
		}
		again, cancel := context.WithTimeout(w.Context(), frozen)
		defer cancel()
		if _, err := store.Get(again, "k"); !errors.Is(err, object.ErrUnknown) {
			w.Errorf("a read of a frozen store: %v", err)
		}
		w.Must(s.Unpause(w.Context()))
		settling, cancel := context.WithTimeout(w.Context(), back)
		defer cancel()
		if _, err := object.PutConfirmed(settling, store, "k", []byte("newer"), object.IfMatch(first)); errors.Is(err, object.ErrConflict) {
			o, err := store.Get(w.Context(), "k")
			w.Must(err)
			if string(o.Body) != "late" {
				w.Fatalf("it has %q", o.Body)
			}
			_, err = store.Put(w.Context(), "k", []byte("newer"), object.IfMatch(o.ETag))
			w.Must(err)
			w.Log("the late write had landed")
		} else {
			w.Must(err)
		}
		for range 50 { // a write that the store still holds back would be applied among these
			if o, err := store.Get(w.Context(), "k"); err != nil || string(o.Body) != "newer" {
				w.Fatalf("after the newer write there is %q (%v)", o.Body, err)
			}
		}
	})
}

// TestFull: a full store refuses to grow, keeps what it has, and accepts writes again once there is
// space.
func TestFull(t *testing.T) {
	each(t, containers.Data{Size: "64m"}, func(w *containers.World, s *containers.Store, _ product) {
		ctx := w.Context()
		store := w.Bucket(s, "full")
		etag, err := store.Put(ctx, "record", []byte("kept"), object.IfAbsent())
		w.Must(err)
		filler := strings.Repeat("x", 1<<20)
		var kept []string
		var full error
		for n := 0; full == nil && n < 100; n++ {
			key := fmt.Sprintf("fill/%02d", n)
			if _, full = store.Put(ctx, key, []byte(filler), object.IfAbsent()); full == nil {
				kept = append(kept, key)
			}
		}
		w.Logf("full after %d MiB: %v", len(kept), full)
		if full == nil || errors.Is(full, object.ErrConflict) || errors.Is(full, object.ErrNotFound) {
			w.Fatalf("a store without room answers %v", full)
		}
		if _, err := store.Put(ctx, "record", []byte(filler), object.IfMatch(etag)); err == nil || errors.Is(err, object.ErrConflict) {
			w.Errorf("a larger record goes where there is no room for it: %v", err)
		}
		if o, err := store.Get(ctx, "record"); err != nil || string(o.Body) != "kept" || o.ETag != etag {
			w.Fatalf("after a refused write there is %q (%v)", o.Body, err)
		}
		for _, key := range kept {
			if o, err := store.Get(ctx, key); err != nil || string(o.Body) != filler {
				w.Errorf("%s is damaged: %d bytes (%v)", key, len(o.Body), err)
			}
			w.Must(store.Delete(ctx, key))
		}
		w.Eventually(back, "there is room again", func(ctx context.Context) error {
			_, err := object.PutConfirmed(ctx, store, "record", []byte("more"), object.IfMatch(etag))
			return err
		})
	})
}

// written reports whether the first writer has counted that much further.
func written(store object.Store, more int) func(context.Context) error {
	from := -1
	return func(ctx context.Context) error {
		o, err := store.Get(ctx, "counter/0")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(o.Body))
		if from < 0 {
			from = n
		}
		if err == nil && n < from+more {
			err = fmt.Errorf("it has counted from %d to %d", from, n)
		}
		return err
	}
}

func answers(store object.Store) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := store.List(ctx, "", "")
		return err
	}
}
