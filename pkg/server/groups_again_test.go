package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

// TestGroupsPutTogetherWhileItLeads: the old object is written again by hand under a
// leader, who moves it apart when it finds it, and has the groups as it says.
func TestGroupsPutTogetherWhileItLeads(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.written()
		s.put(oldGroupsAt, `{ "epoch": 1, "rev": 90, "writer": "old", "groups": { "default": { "web": { "size": 1 } } } }`)
		time.Sleep(2 * time.Minute)
		if !movedApart(s) || !strings.Contains(s.get(groupsAt), `"size": 1`) {
			t.Fatalf("old: %s, new: %s", s.get(oldGroupsAt), s.get(groupsAt))
		}
		p.awaitSize("web", 1)
	})
}

// TestEditWhileTheOldObjectIsFound: an edit that waits while the leader finds that the old
// object rules, and can't be read, is refused: what it wrote would be lost once that can.
func TestEditWhileTheOldObjectIsFound(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.written()
		s.put(oldGroupsAt, `{ "groups": 7 }`)
		reading := make(chan struct{}, 1)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbGet && r.Key == oldGroupsAt {
				select {
				case reading <- struct{}{}:
				default:
				}
				return objecttest.Outcome{Latency: time.Second}
			}
			return objecttest.Outcome{}
		})
		<-reading
		_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))})
		refused(t, err, codes.FailedPrecondition, oldGroupsAt)
		if strings.Contains(s.get(groupsAt), `"size": 1`) {
			t.Errorf("stored: %s", s.get(groupsAt))
		}
	})
}

// TestGroupsOfNoTenant: what the old object says under a name that no tenant can have keeps
// nobody from taking over.
func TestGroupsOfNoTenant(t *testing.T) {
	for _, name := range []string{"", "Prod", "a/b", "../x", "a//b", strings.Repeat("x", 2000)} {
		t.Run(fmt.Sprintf("%.10q", name), simulation(func(t *testing.T) {
			s := newSite(t)
			s.put(oldGroupsAt, fmt.Sprintf(`{ "groups": { %q: { "web": { "size": 3 } }, "default": { "web": { "size": 1 } } } }`, name))
			p := s.start()
			s.populate(p)
			p.awaitLeading()
			p.awaitSize("web", 1)
			if keys := s.keys("groups/"); len(keys) != 3 { // of the tenants default and prod, and the old one
				t.Errorf("there are %v", keys)
			}
		}))
	}
}
