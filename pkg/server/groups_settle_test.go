package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestOneGroupUnreadable: an unreadable group record costs the store one listing per minute.
func TestOneGroupUnreadable(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 0 } }`
		s.putConfig(shardID)
		jobAt := groupAt("prod", "job")
		s.put(jobAt, `{ "size": "7" }`)
		s.start().awaitLeading()
		time.Sleep(10 * time.Minute)
		var looks atomic.Int32
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if strings.HasPrefix(r.Key, "groups/") {
				looks.Add(1)
			}
			return objecttest.Outcome{}
		})
		time.Sleep(time.Hour)
		s.store.Set(nil)
		s.put(jobAt, `{ "template": "knd", "size": 1 }`)
		time.Sleep(3 * time.Minute)
		if len(s.belonging("prod", "job")) != 1 {
			t.Error("it was not read again")
		}
		if n := looks.Load(); n > 60 {
			t.Errorf("%d requests in an hour", n)
		}
	})
}

// TestKnownGroupUnreadable: a leader continues a group whose record can no longer be read with what it
// knew: it replaces what dies, and takes nothing away.
func TestKnownGroupUnreadable(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, _ := elevenOf(t)
		for group, n := range map[string]int{"job": 9, "web": 2} {
			s.put(groupAt("default", group), `{ "size": "7" }`)
			time.Sleep(5 * time.Minute) // it has been listed
			before := s.belonging("default", group)
			s.world.Kill(before[0])
			time.Sleep(time.Minute)
			if now := s.belonging("default", group); len(now) != n || slices.Contains(now, before[0]) {
				t.Errorf("group %s has %v, after %s of %v died", group, now, before[0], before)
			}
			g, err := p.group(group)
			if err != nil || int(g.GetSize()) != n {
				t.Errorf("group %s: %v, %v", group, g, err)
			}
		}
	})
}

// TestMistakeFoundByAnEdit: an invalid external change is reported when an edit finds it, not
// only after the next relisting.
func TestMistakeFoundByAnEdit(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		time.Sleep(5 * time.Minute) // the reads after a takeover are done
		watch := p.watchErrors("prod")
		watch.quiet()
		jobAt := groupAt("prod", "job")
		s.put(jobAt, `{ "size": [`)
		if _, err := p.operator("prod").UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{Key: "job", Size: ptr(int32(1))}); err == nil {
			t.Fatal("the edit went through")
		}
		watch.next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == "GroupsInvalid" && strings.Contains(e.GetMessage(), jobAt)
		})
	})
}

// TestDoubtHoldsUpNobody: while one tenant's writes hang and are retried, others do not wait.
func TestDoubtHoldsUpNobody(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		time.Sleep(2 * time.Minute) // until the groups have been relisted after the takeover
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "groups/"+shardID+"/prod/") {
				return objecttest.Outcome{Fault: objecttest.Hung}
			}
			return objecttest.Outcome{}
		})
		prod := p.operator("prod")
		for n := range 3 {
			go func() {
				for ctx := t.Context(); ctx.Err() == nil; {
					ask, cancel := context.WithTimeout(ctx, 20*time.Second)
					_, _ = prod.UpsertGroup(ask, &nstancev1.UpsertGroupRequest{Key: fmt.Sprint("job", n), Template: ptr("knd"), Size: ptr(int32(1))})
					cancel()
				}
			}()
		}
		for n := range int32(100) {
			began := time.Now()
			p.scale(3 + n%2)
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("default waited %s for prod", took)
			}
			time.Sleep(3 * time.Second)
		}
		s.store.Set(nil)
	})
}
