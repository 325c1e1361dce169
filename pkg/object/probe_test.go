package object_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
)

// deaf is a store that gets one thing wrong.
type deaf struct {
	object.Store
	put func(inner object.Store, ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error)
}

func (d deaf) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	return d.put(d.Store, ctx, key, body, pre)
}

func TestProbeNamesWhatIsNotHonoured(t *testing.T) {
	always := object.Precondition{}
	for name, c := range map[string]struct {
		put  func(object.Store, context.Context, string, []byte, object.Precondition) (object.ETag, error)
		want string
	}{
		"ignores if-absent": {func(s object.Store, ctx context.Context, k string, b []byte, pre object.Precondition) (object.ETag, error) {
			if pre.Absent() {
				pre = always
			}
			return s.Put(ctx, k, b, pre)
		}, "if-absent on a present object overwrites"},
		"ignores if-match": {func(s object.Store, ctx context.Context, k string, b []byte, pre object.Precondition) (object.ETag, error) {
			if !pre.Absent() {
				pre = always
			}
			return s.Put(ctx, k, b, pre)
		}, "if-match of an outdated etag overwrites"},
		"creates by if-match": {func(s object.Store, ctx context.Context, k string, b []byte, pre object.Precondition) (object.ETag, error) {
			if _, err := s.Get(ctx, k); errors.Is(err, object.ErrNotFound) {
				pre = always
			}
			return s.Put(ctx, k, b, pre)
		}, "if-match on an absent object overwrites"},
		"refuses and writes": {func(s object.Store, ctx context.Context, k string, b []byte, pre object.Precondition) (object.ETag, error) {
			etag, err := s.Put(ctx, k, b, pre)
			if errors.Is(err, object.ErrConflict) {
				_, _ = s.Put(ctx, k, b, always)
			}
			return etag, err
		}, "is refused but changes the object"},
		"refuses all": {func(_ object.Store, _ context.Context, _ string, _ []byte, _ object.Precondition) (object.ETag, error) {
			return "", object.ErrConflict
		}, "if-absent on an absent object is refused"},
		"refuses if-match": {func(s object.Store, ctx context.Context, k string, b []byte, pre object.Precondition) (object.ETag, error) {
			if !pre.Absent() {
				return "", object.ErrConflict
			}
			return s.Put(ctx, k, b, pre)
		}, "if-match of the current etag is refused"},
		"constant etag": {func(s object.Store, ctx context.Context, k string, b []byte, pre object.Precondition) (object.ETag, error) {
			if _, err := s.Put(ctx, k, b, pre); err != nil {
				return "", err
			}
			return "constant", nil
		}, "success is not there"},
		"does not write": {func(_ object.Store, _ context.Context, _ string, _ []byte, _ object.Precondition) (object.ETag, error) {
			return "etag", nil
		}, "success is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			inner := mem.New(mem.Config{})
			err := object.Probe(t.Context(), deaf{Store: inner, put: c.put}, "run")
			if !errors.Is(err, object.ErrNoConditionalWrites) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("probe: %v, want ErrNoConditionalWrites that says %q", err, c.want)
			}
			wantEmpty(t, inner)
		})
	}
}

func wantEmpty(t *testing.T, s object.Store) {
	t.Helper()
	left, err := object.All(context.WithoutCancel(t.Context()), s, "")
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestProbeSaysUnknown holds that an outage is not taken for a bad store, and that
// a probe cut off by its context still cleans up.
func TestProbeSaysUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := mem.New(mem.Config{})
		for nth := range 8 {
			n := 0
			faults := objecttest.NewFaults(inner, func(r objecttest.Request) objecttest.Outcome {
				if n++; n == nth+1 && r.Verb != object.VerbDelete {
					return objecttest.Outcome{Fault: objecttest.Hung}
				}
				return objecttest.Outcome{}
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := object.Probe(ctx, faults, "run")
			cancel()
			if err == nil || errors.Is(err, object.ErrNoConditionalWrites) || !errors.Is(err, object.ErrUnknown) {
				t.Errorf("probe whose request %d hangs: %v, want ErrUnknown", nth+1, err)
			}
			wantEmpty(t, inner)
		}
	})
}

func TestProbeAtOnce(t *testing.T) {
	s := mem.New(mem.Config{HashETags: true})
	var wg sync.WaitGroup
	for _, id := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			if err := object.Probe(t.Context(), s, id); err != nil {
				t.Errorf("probe %s: %v", id, err)
			}
		})
	}
	wg.Wait()
	wantEmpty(t, s)
	if err := object.Probe(t.Context(), s, "not/../clean"); !errors.Is(err, object.ErrInvalidKey) {
		t.Errorf("probe with an unclean id: %v", err)
	}
}

// TestProbeSparesAnotherRun holds that an id used twice is an error, and that the
// other run's object stays.
func TestProbeSparesAnotherRun(t *testing.T) {
	s := mem.New(mem.Config{})
	if _, err := s.Put(t.Context(), "probe/run", []byte("another's"), object.Precondition{}); err != nil {
		t.Fatal(err)
	}
	err := object.Probe(t.Context(), s, "run")
	if err == nil || errors.Is(err, object.ErrNoConditionalWrites) {
		t.Errorf("probe with a taken id: %v", err)
	}
	if o, err := s.Get(t.Context(), "probe/run"); err != nil || string(o.Body) != "another's" {
		t.Errorf("the other's object is %q, %v", o.Body, err)
	}
}
