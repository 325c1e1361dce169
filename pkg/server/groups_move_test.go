package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// prodAt is where the groups of tenant prod are.
const prodAt = "groups/" + shardID + "/prod.jsonc"

// together is what all tenants' groups were like in one object.
const together = `{ "epoch": 0, "rev": 40, "writer": "w", "groups": {
	"default": { "web": { "size": 3, "revision": 12 }, "own": { "template": "knd", "size": 1, "revision": 40 } },
	"prod": { "api": { "template": "knd", "size": 2, "newer": 1 } } } }`

// TestGroupsMoveApart: whatever becomes of any write of the move, until it has ended the
// old object rules, and the next leader ends it. What an earlier move left counts for
// nothing. Once it has ended the tenants' objects rule.
func TestGroupsMoveApart(t *testing.T) {
	for name, fault := range map[string]objecttest.Fault{"lost": objecttest.Dropped, "reply lost": objecttest.ReplyLost} {
		for after := range 4 {
			t.Run(fmt.Sprint(name, " after ", after), simulation(func(t *testing.T) {
				s := newSite(t)
				s.put(oldGroupsAt, together)
				s.put(groupsAt, `{ "epoch": 0, "rev": 70, "writer": "x",
					"groups": { "web": { "size": 9 }, "stray": { "template": "knd", "size": 1 } } }`)
				struck := make(chan struct{})
				puts := 0
				s.store.Set(func(r objecttest.Request) objecttest.Outcome {
					if !strings.HasPrefix(r.Key, "groups/") || r.Verb != object.VerbPut && puts <= after {
						return objecttest.Outcome{}
					}
					if puts++; puts == after+1 {
						close(struck)
					}
					if puts > after {
						return objecttest.Outcome{Fault: fault}
					}
					return objecttest.Outcome{}
				})
				p := s.start(named("a"))
				if after < 3 {
					<-struck // there are three writes: two tenants, and that they have moved
				} else {
					p.awaitLeading()
				}
				p.ends()
				s.store.Set(nil)
				moved := movedApart(s)
				if before := s.get(oldGroupsAt); !moved && before != together || moved && after < 2 {
					t.Fatalf("after %d writes the old object is %s", after, before)
				}
				q := s.start(named("b"))
				s.populate(q)
				s.checkMoved(q)
				q.ends()
				r := s.successorNamed("c")
				s.checkMoved(r)
			}))
		}
	}
}

func (s *site) successorNamed(id string) *process {
	s.t.Helper()
	p := s.start(named(id)).awaitLeading()
	p.takesAgents()
	return p
}

func movedApart(s *site) bool {
	_, moved := config.ParseMoved([]byte(s.get(oldGroupsAt)))
	return moved
}

// checkMoved fails unless the groups are as they were together, each tenant's in an
// object of its own.
func (s *site) checkMoved(p *process) {
	s.t.Helper()
	p.awaitSize("web", 3)
	p.awaitSize("own", 1)
	eventually(s.t, "prod has its machines", func() error {
		if n := len(s.belonging("prod", "api")); n != 2 {
			return fmt.Errorf("it has %d", n)
		}
		return nil
	})
	if !movedApart(s) {
		s.t.Errorf("the old object is %s", s.get(oldGroupsAt))
	}
	for at, want := range map[string][]string{groupsAt: {"web", "own"}, prodAt: {"api", "newer"}} {
		text := s.get(at)
		for _, word := range want {
			if !strings.Contains(text, `"`+word+`"`) || strings.Contains(text, "stray") {
				s.t.Errorf("%s is %s", at, text)
			}
		}
		if e, err := config.ParseEntries([]byte(text)); err != nil || e.Header().Rev <= 40 {
			s.t.Errorf("%s has rev %d, %v: revisions may come twice", at, e.Header().Rev, err)
		}
	}
}

// TestGroupsTooLargeToMove: groups that a person wrote without room to spare, and that
// would be too large as they are written here, keep nobody from leading. It is said
// whose they are, they are left as they are, and no instance is touched.
func TestGroupsTooLargeToMove(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		kept := s.belonging("default", "web")
		p.ends()
		many := strings.TrimSuffix(strings.Repeat("0,", 700_000), ",")
		large := `{"epoch":1,"rev":90,"writer":"old","groups":{"prod":{"job":{"template":"knd","size":1,"vars":{"v":[` + many + `]}}}}}`
		s.put(oldGroupsAt, large)
		q := s.successor()
		q.watchErrors("default").next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == "GroupsInvalid" && strings.Contains(e.GetMessage(), "tenant prod") &&
				strings.Contains(e.GetMessage(), "too large")
		})
		if now := s.belonging("default", "web"); !slices.Equal(now, kept) || s.get(oldGroupsAt) != large {
			t.Errorf("web has %v, had %v; the old object has changed: %t", now, kept, s.get(oldGroupsAt) != large)
		}
	})
}

// TestGroupsPutTogetherAgain: who goes back to an older version writes the old object
// again, by hand; with it the groups are as it says, but those that it lacks are held.
func TestGroupsPutTogetherAgain(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		if _, err := p.operator("prod").UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{
			Key: "job", Template: ptr("knd"), Size: ptr(int32(1)),
		}); err != nil {
			t.Fatal(err)
		}
		p.ends()
		s.put(oldGroupsAt, `{ "epoch": 1, "rev": 90, "writer": "old", "groups": { "default": { "web": { "size": 1 } } } }`)
		q := s.successor()
		q.awaitSize("web", 1)
		time.Sleep(5 * time.Minute)
		if job := mustGroupOf(t, q.operator("prod"), "job"); len(s.belonging("prod", "job")) != 1 || condition(job, "GroupRecordMissing") == nil {
			t.Errorf("a group that it lacks is no more: %v", job)
		}
		if !movedApart(s) || strings.Contains(s.get(prodAt), "job") {
			t.Errorf("old: %s, prod: %s", s.get(oldGroupsAt), s.get(prodAt))
		}
	})
}

// TestLateWriteOfAnOlderVersion: a server that knows one object for all tenants sent a
// write before it lost the lead. It can't land any more, be there an object or not.
func TestLateWriteOfAnOlderVersion(t *testing.T) {
	for name, before := range map[string]string{"over one": together, "the first": ""} {
		t.Run(name, simulation(func(t *testing.T) {
			s := newSite(t)
			over := object.IfAbsent()
			if before != "" {
				s.put(oldGroupsAt, before)
				o, err := s.inner.Get(t.Context(), oldGroupsAt)
				if err != nil {
					t.Fatal(err)
				}
				over = object.IfMatch(o.ETag)
			}
			p := s.start()
			s.populate(p)
			p.awaitLeading()
			if _, err := s.inner.Put(t.Context(), oldGroupsAt, []byte(`{ "groups": {} }`), over); err == nil {
				t.Errorf("it landed: %s", s.get(oldGroupsAt))
			}
		}))
	}
}
