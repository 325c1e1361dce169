package objecttest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// testSettle fails a write in every way, once and twice in a row, and checks that PutConfirmed
// resolves its outcome.
func testSettle(t *testing.T, inner object.Store) {
	late := Outcome{Fault: Late, Delay: 20 * time.Millisecond}
	for name, script := range map[string][]Outcome{
		"served":       {},
		"dropped":      {{Fault: Dropped}},
		"reply lost":   {{Fault: ReplyLost}},
		"late":         {late},
		"dropped, yes": {{Fault: Dropped}, {Fault: ReplyLost}},
		"late, lost":   {late, {Fault: ReplyLost}},
		"late, late":   {late, late},
	} {
		t.Run(name, func(t *testing.T) {
			key := "settle/" + name
			for rev, pre := range []object.Precondition{object.IfAbsent(), object.IfMatch(put(t, inner, key+" 2", "zero", object.Precondition{}))} {
				if rev == 1 {
					key += " 2"
				}
				f := NewFaults(inner, Script(script...))
				etag, err := object.PutConfirmed(t.Context(), f, key, []byte("mine of "+key), pre)
				if err != nil {
					t.Fatalf("put: %v", err)
				}
				f.Wait() // late writes must not change it
				wantObject(t, inner, key, "mine of "+key, etag)
			}
		})
	}
	t.Run("overtaken", func(t *testing.T) { testSettleOvertaken(t, inner) })
	t.Run("conflict", func(t *testing.T) { testSettleConflict(t, inner) })
	t.Run("down", func(t *testing.T) { testSettleDown(t, inner) })
}

// testSettleOvertaken lets another writer land between a write and its read-back.
func testSettleOvertaken(t *testing.T, inner object.Store) {
	for name, fault := range map[string]Fault{"dropped": Dropped, "reply lost": ReplyLost} {
		key := "settle/overtaken/" + name
		old := put(t, inner, key, "old", object.Precondition{})
		f := NewFaults(inner, Script(Outcome{Fault: fault}))
		first := &afterFirstPut{Store: f, do: func() { put(t, inner, key, "theirs", object.Precondition{}) }}
		_, err := object.PutConfirmed(t.Context(), first, key, []byte("mine"), object.IfMatch(old))
		wantErr(t, name, err, object.ErrConflict)
		o, err := inner.Get(t.Context(), key)
		if err != nil || string(o.Body) != "theirs" {
			t.Errorf("%s: get = %q, %v; the other's write must stand", name, o.Body, err)
		}
	}
}

func testSettleConflict(t *testing.T, inner object.Store) {
	key := "settle/conflict"
	etag := put(t, inner, key, "theirs", object.Precondition{})
	_, err := object.PutConfirmed(t.Context(), inner, key, []byte("mine"), object.IfAbsent())
	wantErr(t, "if-absent", err, object.ErrConflict)
	_, err = object.PutConfirmed(t.Context(), inner, key, []byte("mine"), object.IfMatch("stale"))
	wantErr(t, "if-match", err, object.ErrConflict)
	if _, err = object.PutConfirmed(t.Context(), inner, key, []byte("mine"), object.Precondition{}); err == nil {
		t.Error("PutConfirmed accepts an unconditional write")
	}
	wantObject(t, inner, key, "theirs", etag)
}

func testSettleDown(t *testing.T, inner object.Store) {
	ctx := overdue{t.Context(), make(chan struct{})}
	f := &givenUp{Store: NewFaults(inner, Always(Outcome{Fault: Dropped})), passed: ctx.passed}
	_, err := object.PutConfirmed(ctx, f, "settle/down", []byte("mine"), object.IfAbsent())
	wantErr(t, "settle on a store that is down", err, object.ErrUnknown, context.DeadlineExceeded, ErrInjected)
	if errors.Is(err, object.ErrConflict) {
		t.Errorf("a store that is down is no conflict: %v", err)
	}
}

// givenUp is a store whose caller's deadline passes with the answer to the second read.
type givenUp struct {
	object.Store
	reads  int
	passed chan<- struct{}
}

func (s *givenUp) Get(ctx context.Context, key string) (object.Object, error) {
	o, err := s.Store.Get(context.WithoutCancel(ctx), key)
	if s.reads++; s.reads == 2 {
		close(s.passed)
	}
	return o, err
}

// overdue is a context whose deadline passes when the test says so, however busy the machine is.
type overdue struct {
	context.Context
	passed chan struct{}
}

// Done implements context.Context.
func (o overdue) Done() <-chan struct{} { return o.passed }

// Err implements context.Context.
func (o overdue) Err() error {
	select {
	case <-o.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// afterFirstPut calls do right after the reply to the first Put.
type afterFirstPut struct {
	object.Store
	do func()
}

func (s *afterFirstPut) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	etag, err := s.Store.Put(ctx, key, body, pre)
	if s.do != nil {
		s.do()
		s.do = nil
	}
	return etag, err
}
