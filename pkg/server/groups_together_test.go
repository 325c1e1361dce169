package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// slowPuts has each write of groups take a while, and counts them.
func (s *site) slowPuts(takes time.Duration, fate func(nth int32) objecttest.Fault) *atomic.Int32 {
	puts := &atomic.Int32{}
	s.store.Set(func(r objecttest.Request) objecttest.Outcome {
		if r.Verb != object.VerbPut || !strings.HasPrefix(r.Key, "groups/") {
			return objecttest.Outcome{}
		}
		return objecttest.Outcome{Latency: takes, Fault: fate(puts.Add(1))}
	})
	return puts
}

func served(int32) objecttest.Fault { return objecttest.Served }

// TestEditsAreWrittenTogether: those that wait for a write are written by the next, each
// is answered on its own merits, and not before it is durable.
func TestEditsAreWrittenTogether(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.written()
		puts := s.slowPuts(20*time.Millisecond, served)
		client := p.operator("default")
		const all = 200
		errs := make([]error, all)
		var calls sync.WaitGroup
		for n := range all {
			calls.Go(func() {
				req := &nstancev1.UpsertGroupRequest{Key: fmt.Sprintf("g%d", n), Template: ptr("knd"), Size: ptr(int32(0))}
				if n%10 == 3 {
					req.Template = ptr("nosuch")
				}
				_, errs[n] = client.UpsertGroup(within(t), req)
				if text := s.get(groupsAt); errs[n] == nil && !strings.Contains(text, `"`+req.GetKey()+`"`) {
					t.Errorf("%s was acknowledged before it was durable", req.GetKey())
				}
			})
		}
		calls.Wait()
		for n, err := range errs {
			switch {
			case n%10 == 3:
				refused(t, err, codes.InvalidArgument, "invalid group")
			case err != nil:
				t.Errorf("%d: %v", n, err)
			}
		}
		if n := puts.Load(); n > 10 {
			t.Errorf("%d edits took %d writes", all, n)
		}
		if strings.Contains(s.get(groupsAt), "nosuch") {
			t.Error("what was refused is stored")
		}
	})
}

// TestEditsTogetherOfOneGroup: one edit sees what the edits before it did, although that
// is not durable yet.
func TestEditsTogetherOfOneGroup(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.written()
		puts := s.slowPuts(50*time.Millisecond, served)
		won := p.upsertTogether(func(size int32) *nstancev1.UpsertGroupRequest {
			return &nstancev1.UpsertGroupRequest{Key: "new", Template: ptr("knd"), Size: ptr(size), IfEtag: ptr("")}
		})
		if g, err := p.group("new"); err != nil || g.GetSize() != won {
			t.Errorf("%d won, and the group is %v, %v", won, g, err)
		}
		if n := puts.Load(); n > 2 {
			t.Errorf("%d writes", n)
		}
	})
}

// TestRefusalDependsOnWhatIsDurable: an edit is refused for one before it, whose write
// then comes to nothing. Neither is told more than that nobody knows.
func TestRefusalDependsOnWhatIsDurable(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.written()
		var lost atomic.Bool
		puts := s.slowPuts(50*time.Millisecond, func(nth int32) objecttest.Fault {
			if nth > 1 {
				lost.Store(true)
			}
			if lost.Load() {
				return objecttest.Dropped
			}
			return objecttest.Served
		})
		client := p.operator("default")
		var first sync.WaitGroup
		first.Go(func() { p.scale(1) }) // those after it wait
		eventually(t, "it is under way", func() error {
			if puts.Load() == 0 {
				return fmt.Errorf("it is not")
			}
			return nil
		})
		answers := make([]error, 2)
		var calls sync.WaitGroup
		for n := range answers {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, answers[n] = client.UpsertGroup(ctx, &nstancev1.UpsertGroupRequest{
					Key: "new", Template: ptr("knd"), Size: ptr(int32(n)), IfEtag: ptr(""),
				})
			})
		}
		first.Wait()
		calls.Wait()
		for _, err := range answers {
			if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
				t.Errorf("answered %v", err)
			}
		}
		time.Sleep(2 * 200 * time.Millisecond) // the write's grace
		s.store.Set(nil)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "new", Template: ptr("knd"), Size: ptr(int32(0)), IfEtag: ptr("")}); err != nil {
			t.Errorf("nothing was written: %v", err)
		}
	})
}

// TestOneCallerLeaves: who does not wait until its edit is being written has changed
// nothing, and who leaves a write does not take it from the others.
func TestOneCallerLeaves(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.written()
		puts := s.slowPuts(400*time.Millisecond, served)
		client := p.operator("default")
		ask := func(key string, after time.Duration) error {
			ctx, cancel := context.WithTimeout(context.Background(), after)
			defer cancel()
			_, err := client.UpsertGroup(ctx, &nstancev1.UpsertGroupRequest{Key: key, Template: ptr("knd"), Size: ptr(int32(0))})
			return err
		}
		var calls sync.WaitGroup
		calls.Go(func() { p.scale(1) })
		time.Sleep(50 * time.Millisecond)
		calls.Go(func() {
			if err := ask("early", 100*time.Millisecond); err == nil {
				t.Error("early: acknowledged")
			}
		})
		calls.Go(func() {
			if err := ask("middle", 500*time.Millisecond); err == nil {
				t.Error("middle: acknowledged")
			}
		})
		calls.Go(func() {
			if err := ask("stays", patience); err != nil {
				t.Errorf("stays: %v", err)
			}
		})
		calls.Wait()
		if text := s.get(groupsAt); strings.Contains(text, "early") || !strings.Contains(text, "stays") || puts.Load() != 2 {
			t.Errorf("after %d writes the groups are %s", puts.Load(), text)
		}
	})
}

// TestTenantsDoNotWaitForEachOther: a write of one tenant's groups that hangs holds up
// nobody else's.
func TestTenantsDoNotWaitForEachOther(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.written()
		hung := make(chan struct{}, 10)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && r.Key == prodAt {
				hung <- struct{}{}
				return objecttest.Outcome{Fault: objecttest.Hung}
			}
			return objecttest.Outcome{}
		})
		prod := p.operator("prod")
		ctx, cancel := context.WithCancel(within(t))
		go func() {
			_, _ = prod.UpsertGroup(ctx, &nstancev1.UpsertGroupRequest{Key: "job", Template: ptr("knd"), Size: ptr(int32(1))})
		}()
		<-hung
		began := time.Now()
		p.scale(3)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("default waited %s for prod", took)
		}
		cancel()
		s.store.Set(nil)
	})
}
