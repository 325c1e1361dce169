package server_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// TestRefreshWithoutStorage: a config that can't be read or recorded does not run.
func TestRefreshWithoutStorage(t *testing.T) {
	for name, c := range map[string]struct {
		prefix string
		verb   object.Verb
	}{
		"config is not readable":  {"config/", object.VerbGet},
		"applied is not readable": {"applied/", object.VerbGet},
		"applied is not writable": {"applied/", object.VerbPut},
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t, with("MORE", `"request_timeout": "300ms",`))
			before := p.configStatus()
			s.replace(`"size": 2`, `"size": 1`)
			s.store.Set(func(r objecttest.Request) objecttest.Outcome {
				if strings.HasPrefix(r.Key, c.prefix) && r.Verb == c.verb {
					return objecttest.Outcome{Fault: objecttest.Dropped}
				}
				return objecttest.Outcome{}
			})
			_, err := p.refresh()
			refused(t, err, codes.Unavailable, "storage")
			if st := p.configStatus(); !proto.Equal(st, before) {
				t.Errorf("status went from %v to %v", before, st)
			}
			if g := s.mustGroup(p, "web"); g.GetSize() != 2 {
				t.Errorf("web is %v", g)
			}
			s.store.Set(nil)
			p.refreshes(updated)
			p.awaitSize("web", 1)
		}))
	}
}

// TestRefreshUnfenced: a leader that can't confirm its term has recorded the config, but neither
// runs it nor acknowledges it.
func TestRefreshUnfenced(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, with("MORE", `"request_timeout": "300ms",`))
		p.written()
		before := p.configStatus()
		s.replace(`"size": 2`, `"size": 1`)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if strings.HasPrefix(r.Key, "leader/") && r.Verb == object.VerbPut {
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			return objecttest.Outcome{}
		})
		time.Sleep(150 * time.Millisecond) // more than the fence window
		_, err := p.refresh()
		refused(t, err, codes.Unavailable)
		if st := p.configStatus(); !proto.Equal(st, before) {
			t.Errorf("status went from %v to %v", before, st)
		}
		s.store.Set(nil)
		p.refreshes(updated)
		p.awaitSize("web", 1)
	})
}

// TestRefreshTakenBack: a config that was recorded but never ran is no longer the accepted one
// once the running config is back in its place.
func TestRefreshTakenBack(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, with("MORE", `"request_timeout": "300ms",`))
		p.written()
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if strings.HasPrefix(r.Key, "leader/") && r.Verb == object.VerbPut {
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			return objecttest.Outcome{}
		})
		time.Sleep(150 * time.Millisecond) // more than the fence window
		good := s.get(configAt)
		s.replace(`"size": 2`, `"size": 2, "drain_timeout": "9s"`)
		_, err := p.refresh()
		refused(t, err, codes.Unavailable)
		if s.accepted() == good {
			t.Fatal("it was not kept")
		}
		s.store.Set(nil)
		s.put(configAt, good)
		eventually(t, "the refresh is answered", func() error { _, err := p.refresh(); return err })
		if s.accepted() != good {
			t.Error("a takeover on a broken config would run what was taken back")
		}
		p.awaitSize("web", 2)
	})
}

// TestRefreshLostReplies loses the store's reply to the write of applied/, once after applying
// it and once without.
func TestRefreshLostReplies(t *testing.T) {
	for name, fault := range map[string]objecttest.Fault{"applied": objecttest.ReplyLost, "not applied": objecttest.Dropped} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t)
			var struck atomic.Bool
			s.store.Set(func(r objecttest.Request) objecttest.Outcome {
				if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "applied/") && !struck.Swap(true) {
					return objecttest.Outcome{Fault: fault}
				}
				return objecttest.Outcome{}
			})
			s.replace(`"size": 2`, `"size": 1`)
			p.refreshes(updated)
			if s.accepted() != s.get(configAt) {
				t.Error("the accepted config was not kept")
			}
			p.awaitSize("web", 1)
		}))
	}
}

// TestRefreshOrder: the config is recorded before it runs.
func TestRefreshOrder(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		arrived := make(chan struct{}, 1)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "applied/") {
				arrived <- struct{}{}
				return objecttest.Outcome{Latency: 200 * time.Millisecond}
			}
			return objecttest.Outcome{}
		})
		s.replace(`"size": 2`, `"size": 1`)
		go func() {
			<-arrived
			time.Sleep(100 * time.Millisecond)
			if g, err := p.group("web"); err != nil || g.GetSize() != 2 {
				t.Errorf("before it was kept web is %v, %v", g, err)
			}
		}()
		p.refreshes(updated)
		if g := s.mustGroup(p, "web"); g.GetSize() != 1 {
			t.Errorf("once it was kept web is %v", g)
		}
	})
}

// TestRefreshDuringTheEndOfATerm: nothing is acknowledged.
func TestRefreshDuringTheEndOfATerm(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		s.replace(`"size": 2`, `"size": 1`)
		arrived := make(chan struct{}, 1)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "applied/") {
				select {
				case arrived <- struct{}{}:
				default:
				}
				return objecttest.Outcome{Fault: objecttest.Hung}
			}
			return objecttest.Outcome{}
		})
		answers := make(chan error, 2)
		for range cap(answers) {
			client := p.operator("default")
			go func() {
				_, err := client.RefreshConfig(context.Background(), &nstancev1.RefreshConfigRequest{})
				answers <- err
			}()
		}
		<-arrived
		p.ends()
		for range cap(answers) {
			if err := <-answers; status.Code(err) != codes.Unavailable {
				t.Errorf("answered %v", err)
			}
		}
	})
}
