package object_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
)

// deaf is a store with one deviation.
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
		}, "successful write is not readable"},
		"does not write": {func(_ object.Store, _ context.Context, _ string, _ []byte, _ object.Precondition) (object.ETag, error) {
			return "etag", nil
		}, "successful write is not readable"},
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

// TestProbeSaysUnknown: an outage is not ErrUnfit, and a probe whose context ends still cleans
// up.
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

// TestProbeSparesAnotherRun: a reused ID is an error, and the other run's object stays.
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

// sly is a store with a deviation that sequential writes do not show.
type sly struct {
	object.Store
	mu      sync.Mutex
	deleted map[string]bool // keys whose delete marker refuses if-absent permanently
	racy    bool            // judges before it writes
	hides   string          // a key that no listing shows
	late    int             // listings that show nothing yet
}

func (s *sly) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	s.mu.Lock()
	marked := s.deleted[key]
	s.mu.Unlock()
	if marked && pre.Absent() {
		return "", object.ErrConflict
	}
	if s.racy {
		o, err := s.Get(ctx, key)
		if err != nil && !errors.Is(err, object.ErrNotFound) || !pre.Holds(o.ETag) {
			return "", object.ErrConflict
		}
		time.Sleep(time.Millisecond)
		pre = object.Precondition{}
	}
	return s.Store.Put(ctx, key, body, pre)
}

func (s *sly) Delete(ctx context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deleted != nil {
		s.deleted[key] = true
	}
	return s.Store.Delete(ctx, key)
}

func (s *sly) List(ctx context.Context, prefix, token string) (object.Page, error) {
	page, err := s.Store.List(ctx, prefix, token)
	if s.late--; s.late >= 0 {
		return object.Page{}, nil
	}
	page.Objects = slices.DeleteFunc(page.Objects, func(o object.Info) bool { return s.hides != "" && strings.HasSuffix(o.Key, s.hides) })
	return page, err
}

// TestProbeNamesWhatOneWriterDoesNotSee: a probe detects delete markers, racing writers that all
// succeed, and incomplete listings.
func TestProbeNamesWhatOneWriterDoesNotSee(t *testing.T) {
	for name, c := range map[string]struct {
		quirk *sly
		want  string
	}{
		"delete markers": {&sly{deleted: map[string]bool{}}, "if-absent after a deletion is refused while a read finds nothing"},
		"racing writers": {&sly{racy: true}, "of 8 concurrent writers with if-absent, more than one succeeds"},
		"hidden keys":    {&sly{hides: "-page3"}, "a listing lacks written objects"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := mem.New(mem.Config{})
				c.quirk.Store = inner
				err := object.Probe(t.Context(), c.quirk, "run")
				if !errors.Is(err, object.ErrUnfit) || object.Reason(err) != c.want {
					t.Errorf("probe: %v, want ErrUnfit: %q", err, c.want)
				}
				wantEmpty(t, inner)
			})
		})
	}
}

// TestExamineSaysHowLateListingsAre: a late listing is measured, not a failure.
func TestExamineSaysHowLateListingsAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		findings := object.Examine(t.Context(), &sly{Store: mem.New(mem.Config{}), late: 3}, "run")
		for _, f := range findings {
			if f.Result != object.ResultOK || f.Meaning == "" {
				t.Errorf("%+v", f)
			}
		}
		if last := findings[len(findings)-1]; !strings.HasPrefix(last.Detail, "written objects are listed after ") {
			t.Errorf("%+v", last)
		}
	})
}

// TestExamineStopsAtTheFirst: the checks after a failure are not run.
func TestExamineStopsAtTheFirst(t *testing.T) {
	findings := object.Examine(t.Context(), &sly{Store: mem.New(mem.Config{}), deleted: map[string]bool{}}, "run")
	results := map[string]int{}
	for _, f := range findings {
		results[f.Result]++
	}
	last := findings[len(findings)-1].Result
	if results[object.ResultMissing] != 1 || results[object.ResultNotChecked] != 1 || last != object.ResultNotChecked {
		t.Errorf("%+v", findings)
	}
}

// slow is a store that accepts one write of a key a second.
type slow struct {
	object.Store
	mu    sync.Mutex
	taken map[string]time.Time
}

func (s *slow) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.taken[key]; ok && time.Since(last) < time.Second {
		return "", fmt.Errorf("%w: %w", object.ErrUnknown, &object.Answer{Bucket: "b", Status: 429, Code: "SlowDown"})
	}
	s.taken[key] = time.Now()
	return s.Store.Put(ctx, key, body, pre)
}

// TestProbeWaitsWhenPutOff: such a store is checked like any other, including racing writers,
// and its deviations are detected.
func TestProbeWaitsWhenPutOff(t *testing.T) {
	for want, inner := range map[string]func() object.Store{
		"": func() object.Store { return mem.New(mem.Config{}) },
		"if-match of an outdated etag overwrites": func() object.Store {
			return deaf{Store: mem.New(mem.Config{}), put: func(
				s object.Store, ctx context.Context, k string, b []byte, pre object.Precondition,
			) (object.ETag, error) {
				if !pre.Absent() {
					pre = object.Precondition{}
				}
				return s.Put(ctx, k, b, pre)
			}}
		},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if err := object.Probe(t.Context(), &slow{Store: inner(), taken: map[string]time.Time{}}, "run"); object.Reason(err) != want {
					t.Errorf("probe: %v, want %q", err, want)
				}
			})
		})
	}
}
