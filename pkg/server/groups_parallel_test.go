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
)

// slowPuts delays and counts each write of groups.
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

// TestEditsAtOnce: edits of different groups do not block each other, up to the write limit;
// each has its own result, and is durable when it returns.
func TestEditsAtOnce(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		puts := s.slowPuts(20*time.Millisecond, served)
		client := p.operator("default")
		const all = 200
		errs := make([]error, all)
		began := time.Now()
		var calls sync.WaitGroup
		for n := range all {
			calls.Go(func() {
				req := &nstancev1.UpsertGroupRequest{Key: fmt.Sprintf("g%d", n), Template: ptr("knd"), Size: ptr(int32(0))}
				if n%10 == 3 {
					req.Template = ptr("nosuch")
				}
				_, errs[n] = client.UpsertGroup(within(t), req)
				if errs[n] == nil && !strings.Contains(s.get(groupAt("default", req.GetKey())), `"template"`) {
					t.Errorf("%s was acknowledged before it was durable", req.GetKey())
				}
			})
		}
		calls.Wait()
		took := time.Since(began)
		for n, err := range errs {
			switch {
			case n%10 == 3:
				refused(t, err, codes.InvalidArgument, "invalid group")
			case err != nil:
				t.Errorf("%d: %v", n, err)
			}
		}
		if n := puts.Load(); n != all*9/10 || took > 400*time.Millisecond { // 12 rounds of 16 would be 240 ms
			t.Errorf("%d edits took %d writes and %s", all, n, took)
		}
	})
}

// TestEditsOfOneGroup: an edit sees the earlier ones.
func TestEditsOfOneGroup(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		s.slowPuts(50*time.Millisecond, served)
		won := p.upsertTogether(func(size int32) *nstancev1.UpsertGroupRequest {
			return &nstancev1.UpsertGroupRequest{Key: "new", Template: ptr("knd"), Size: ptr(size), IfEtag: ptr("")}
		})
		if g, err := p.group("new"); err != nil || g.GetSize() != won {
			t.Errorf("%d won, and the group is %v, %v", won, g, err)
		}
	})
}

// TestEditsAtOnceKeepTheQuota: of a tenant's concurrent edits, as many succeed as its quota
// allows, whatever the outcome of their writes.
func TestEditsAtOnceKeepTheQuota(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, replaced(`"tenants": { "prod": {} }`, `"tenants": { "prod": { "quota": { "groups": 5, "instances": 20 } } }`))
		p := s.start()
		s.populate(p)
		p.awaitLeading()
		s.slowPuts(20*time.Millisecond, served)
		client := p.operator("prod")
		made := atomic.Int32{}
		var calls sync.WaitGroup
		for n := range 20 {
			calls.Go(func() {
				_, err := client.UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{
					Key: fmt.Sprint("g", n), Template: ptr("knd"), Size: ptr(int32(5)),
				})
				if err == nil {
					made.Add(1)
					return
				}
				refused(t, err, codes.ResourceExhausted, "quota")
			})
		}
		calls.Wait()
		if n := made.Load(); n != 4 {
			t.Errorf("%d groups were made, want the 4 for which there are instances", n)
		}
	})
}

// TestOneCallerLeaves: a caller that leaves before its edit is written has changed nothing.
func TestOneCallerLeaves(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		puts := s.slowPuts(400*time.Millisecond, served)
		client := p.operator("default")
		ask := func(size int32, after time.Duration) error {
			ctx, cancel := context.WithTimeout(context.Background(), after)
			defer cancel()
			_, err := client.UpsertGroup(ctx, &nstancev1.UpsertGroupRequest{Key: "new", Template: ptr("knd"), Size: ptr(size)})
			return err
		}
		var calls sync.WaitGroup
		calls.Go(func() {
			if err := ask(1, patience); err != nil {
				t.Errorf("stays: %v", err)
			}
		})
		time.Sleep(50 * time.Millisecond)
		if err := ask(2, 100*time.Millisecond); err == nil {
			t.Error("it left, and was acknowledged")
		}
		calls.Wait()
		time.Sleep(time.Second)
		if g, err := p.group("new"); err != nil || g.GetSize() != 1 || puts.Load() != 1 {
			t.Errorf("after %d writes the group is %v, %v", puts.Load(), g, err)
		}
	})
}

// TestTenantsDoNotWaitForEachOther: a hanging write of one tenant's groups blocks no other
// tenant.
func TestTenantsDoNotWaitForEachOther(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.written()
		hung := make(chan struct{}, 10)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "groups/"+shardID+"/prod/") {
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
