package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// copied returns the stored objects under the prefixes of a backup.
func (s *site) copied() map[string]string {
	s.t.Helper()
	all := map[string]string{}
	for _, prefix := range []string{"config/", "applied/", "groups/", "instance/", "request/", "leader/"} {
		for _, key := range s.keys(prefix) {
			all[key] = s.get(key)
		}
	}
	return all
}

// putBack restores the store.
func (s *site) putBack(was map[string]string) {
	s.t.Helper()
	for key := range s.copied() {
		if _, ok := was[key]; !ok {
			if err := s.inner.Delete(context.Background(), key); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	for key, text := range was {
		s.put(key, text)
	}
}

// TestBucketPutBack: the bucket is restored to the previous term, so that the next term has the
// epoch of the last one. A client that resumes its watch keeps none of the instances that the
// bucket no longer has. leader/ is restored, too, though it should not be: then only the writer
// distinguishes the two terms.
func TestBucketPutBack(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.ends()
		was, first := s.copied(), s.leader().Epoch
		q := s.successor()
		q.scale(4)
		q.awaitSize("web", 4)
		epoch := q.site.leader().Epoch
		w := q.watchFrom("")
		end, before := w.next("the snapshot's end", endOfInstances)
		if epoch != first+1 || len(before) != 4 {
			t.Fatalf("epoch %d after %d, the snapshot has %v", epoch, first, before)
		}
		q.ends()
		s.putBack(was)
		r := s.start(named("c")).awaitLeading()
		if again := s.leader().Epoch; again != epoch {
			t.Fatalf("epoch %d, want %d again", again, epoch)
		}
		r.takesAgents()
		other := r.watchFrom("")
		for n := range int32(6) { // more events than the client has seen before
			r.scale(3 - n%2)
			r.awaitSize("web", 3-n%2)
			other.quiet()
		}
		w = r.watchFrom(end.GetResumeToken())
		end, before = w.next("the snapshot's end", endOfInstances)
		known := map[fleet.InstanceID]bool{}
		for _, e := range before {
			known[fleet.InstanceID(e.GetInstance().GetId())] = true
		}
		if end.GetResumed() {
			t.Error("the watch goes on in another term")
		}
		for _, key := range s.keys("instance/") {
			name, _ := strings.CutSuffix(key[strings.LastIndex(key, "default.")+len("default."):], ".json")
			if id, err := fleet.ParseStorageKey(name); err != nil || !known[id] {
				t.Errorf("%s is not told: %v", key, err)
			}
		}
	})
}

func (p *process) watchFrom(token string) *watched[nstancev1.WatchInstancesResponse] {
	p.t.Helper()
	time.Sleep(time.Second) // all pending events have been collected
	stream, err := p.operator("default").WatchInstances(p.t.Context(), &nstancev1.WatchInstancesRequest{All: true, ResumeToken: token})
	return follow(p.t, stream, err)
}
