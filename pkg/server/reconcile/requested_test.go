package reconcile_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
)

var errRefused = errors.New("refused")

// leaver is an instance, and a change after which it leaves.
type leaver struct {
	ready  func(s *shard) fleet.InstanceID // makes the instance
	change func(*fleet.Instance)
	shows  func(*fleet.Instance) bool // the record, the change
	to     fleet.Phase
}

func leavers() map[string]leaver {
	drained := func(s *shard) {
		s.wanted.edit(web, func(g *fleet.Group) { g.DrainTimeout = time.Hour })
	}
	running := func(s *shard) fleet.InstanceID {
		id := s.demand(web)
		pass(time.Minute)
		s.expectPhase(id, fleet.Running)
		return id
	}
	return map[string]leaver{
		"removed": {running, asked, isAsked, fleet.Deleting},
		"removed, to be drained": {
			func(s *shard) fleet.InstanceID { drained(s); return running(s) }, asked, isAsked, fleet.Draining,
		},
		"acknowledged": {func(s *shard) fleet.InstanceID {
			drained(s)
			id := s.expectRunning(web, 2)[0]
			s.askOut(id)
			pass(time.Minute)
			s.expectPhase(id, fleet.Draining)
			return id
		}, acknowledged, isAcknowledged, fleet.Deleting},
	}
}

func asked(i *fleet.Instance)               { i.RemovalAskedAt = new(time.Now()) }
func isAsked(i *fleet.Instance) bool        { return i.RemovalAskedAt != nil }
func acknowledged(i *fleet.Instance)        { i.Drain.AckedAt = new(time.Now()) }
func isAcknowledged(i *fleet.Instance) bool { return i.Drain != nil && i.Drain.AckedAt != nil }

// eachLeaver runs a test with each kind of leaver, in a calm shard that runs two of web.
func eachLeaver(t *testing.T, test func(t *testing.T, s *shard, id fleet.InstanceID, x leaver)) {
	for name, x := range leavers() {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				s.size(web, 2)
				s.lead()
				pass(time.Minute)
				test(t, s, x.ready(s), x)
			})
		})
	}
}

// expectLeft waits until an instance that leaves at once is deleted, and one that drains still drains.
func (s *shard) expectLeft(id fleet.InstanceID, x leaver) {
	s.t.Helper()
	pass(time.Minute)
	if x.to == fleet.Draining {
		s.expectPhase(id, fleet.Draining)
		return
	}
	s.expectPhase(id, fleet.Deleted)
}

// failWrites has writes of a record fail, before or after they land.
func (b *bucket) failWrites(id fleet.InstanceID, landed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = func(_ string, of fleet.InstanceID) (bool, error) {
		if of == id {
			return landed, errStoreDown
		}
		return true, nil
	}
}

func (b *bucket) heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = nil
}

func TestRequestIsOneWriteWithWhatFollows(t *testing.T) {
	eachLeaver(t, func(t *testing.T, s *shard, id fleet.InstanceID, x leaver) {
		s.bucket.latency = time.Second
		before, at := s.bucket.written(), time.Now()
		if err := s.change(id, x.change); err != nil {
			t.Fatal(err)
		}
		if took, n := time.Since(at), s.bucket.written()-before; took != time.Second || n != 1 {
			t.Errorf("%d writes in %v, want one", n, took)
		}
		s.expectPhase(id, x.to)
		if r, _ := s.bucket.get(id); !x.shows(&r) {
			t.Errorf("the change was not written with it: %+v", r)
		}
		s.expectLeft(id, x)
	})
}

// TestRequestWithoutPass: a shard that does not decide stores a change alone.
func TestRequestWithoutPass(t *testing.T) {
	eachLeaver(t, func(t *testing.T, s *shard, id fleet.InstanceID, x leaver) {
		phase := s.phase(id)
		_ = s.stop()
		s.world.FailNext(fake.OpList, 20, fake.Fault{Err: errStoreDown})
		s.lead()
		pass(time.Second)
		at := time.Now()
		if err := s.change(id, x.change); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(at); took > 100*time.Millisecond {
			t.Errorf("a change waited %v for a pass", took)
		}
		s.expectPhase(id, phase)
		if r, _ := s.bucket.get(id); !x.shows(&r) {
			t.Errorf("the change was not written: %+v", r)
		}
		pass(10 * time.Minute)
		s.expectLeft(id, x)
	})
}

// TestRequestThatIsNotStored: the caller gets the error, and may repeat the call.
func TestRequestThatIsNotStored(t *testing.T) {
	for name, landed := range map[string]bool{"refused": false, "reply lost": true} {
		t.Run(name, func(t *testing.T) {
			eachLeaver(t, func(t *testing.T, s *shard, id fleet.InstanceID, x leaver) {
				phase := s.phase(id)
				s.bucket.failWrites(id, landed)
				if err := s.change(id, x.change); !errors.Is(err, errStoreDown) {
					t.Errorf("got %v", err)
				}
				if got := s.phase(id); !landed && got != phase {
					t.Errorf("the record moved to %s", got)
				}
				pass(time.Second)
				s.bucket.heal()
				pass(time.Minute)
				err := s.change(id, x.change)
				for n := 0; err != nil && n < 3; n++ { // a conflict shows what was stored
					err = s.change(id, x.change)
				}
				if err != nil {
					t.Error(err)
				}
				s.expectLeft(id, x)
			})
		})
	}
}

func TestRefusedRequest(t *testing.T) {
	eachLeaver(t, func(t *testing.T, s *shard, id fleet.InstanceID, _ leaver) {
		before, phase := s.bucket.written(), s.phase(id)
		err := s.term.Update(context.Background(), id, func(*fleet.Instance) error { return errRefused })
		pass(time.Minute)
		if n := s.bucket.written() - before; !errors.Is(err, errRefused) || n != 0 {
			t.Errorf("%d writes and %v, want none and the refusal", n, err)
		}
		s.expectPhase(id, phase)
	})
}

func TestRequestOfADeposedLeader(t *testing.T) {
	eachLeaver(t, func(t *testing.T, s *shard, id fleet.InstanceID, x leaver) {
		phase := s.phase(id)
		s.bucket.lead()
		if err := s.change(id, x.change); !errors.Is(err, errNotLeader) {
			t.Errorf("got %v", err)
		}
		s.expectPhase(id, phase)
		_ = s.stop() // the loop may have tried first, and ended
	})
}

// TestRequestWhileTheTermEnds: the caller is told that this server does not lead, and not how its write was cut off.
func TestRequestWhileTheTermEnds(t *testing.T) {
	eachLeaver(t, func(t *testing.T, s *shard, id fleet.InstanceID, x leaver) {
		s.bucket.latency = 10 * time.Second
		term, answer := s.term, make(chan error, 1)
		go func() {
			answer <- term.Update(context.Background(), id, func(i *fleet.Instance) error { x.change(i); return nil })
		}()
		pass(time.Second)
		_ = s.stop()
		s.bucket.lead()
		if err := <-answer; !errors.Is(err, errNotLeader) {
			t.Errorf("got %v", err)
		}
	})
}

// TestRequestOfACallerThatLeaves: a caller does not wait for a write that takes longer than its context.
func TestRequestOfACallerThatLeaves(t *testing.T) {
	eachLeaver(t, func(t *testing.T, s *shard, id fleet.InstanceID, x leaver) {
		s.bucket.latency = 10 * time.Second
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		at := time.Now()
		err := s.term.Update(ctx, id, func(i *fleet.Instance) error { x.change(i); return nil })
		if took := time.Since(at); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("got %v after %v", err, took)
		}
		s.expectLeft(id, x)
	})
}

// TestRequestForAReplacement: nothing is created for a managed instance before the request to remove it is durable.
func TestRequestForAReplacement(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		pass(time.Minute)
		id, creates := s.expectRunning(web, 2)[0], s.creates()
		s.bucket.failWrites(id, false)
		if err := s.change(id, asked); !errors.Is(err, errStoreDown) {
			t.Errorf("got %v", err)
		}
		pass(time.Minute)
		if n := s.creates() - creates; n != 0 {
			t.Errorf("%d creates for a request that is not stored", n)
		}
		s.bucket.heal()
		s.askOut(id)
		pass(time.Minute)
		s.expectPhase(id, fleet.Deleted)
		s.expectRunning(web, 2)
	})
}

// TestRequestBesideManySteps: a caller does not wait until the instances of a large group are written.
func TestRequestBesideManySteps(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 1)
		s.size(db, 200)
		s.lead()
		pass(30 * time.Minute)
		s.expectRunning(db, 200)
		id := s.demand(web)
		pass(time.Minute)
		s.expectPhase(id, fleet.Running)
		s.bucket.latency = 100 * time.Millisecond
		s.size(db, 0)
		pass(150 * time.Millisecond)
		at := time.Now()
		if err := s.change(id, asked); err != nil {
			t.Fatal(err)
		}
		if took, left := time.Since(at), len(s.running(db)); took > 300*time.Millisecond || left < 50 {
			t.Errorf("it took %v, with %d of 200 steps left", took, left)
		}
		s.expectPhase(id, fleet.Deleting)
		pass(time.Hour)
		s.expectPhase(id, "")
	})
}

func TestManyRequestsAtOnce(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.wanted.edit(web, func(*fleet.Group) {})
		s.lead()
		var ids []fleet.InstanceID
		for range 50 {
			ids = append(ids, s.demand(web))
		}
		pass(10 * time.Minute)
		before := s.bucket.written()
		var calls sync.WaitGroup
		for _, id := range ids {
			for range 2 { // the second one finds it settled
				calls.Go(func() {
					err := s.term.Update(context.Background(), id, func(i *fleet.Instance) error {
						if i.RemovalAskedAt != nil {
							return errRefused
						}
						asked(i)
						return nil
					})
					if err != nil && !errors.Is(err, errRefused) {
						t.Error(err)
					}
				})
			}
		}
		calls.Wait()
		for _, id := range ids {
			if r, _ := s.bucket.get(id); r.RemovalAskedAt == nil {
				t.Errorf("the request was lost: %+v", r)
			}
		}
		pass(time.Minute)
		if n := len(s.records(web, fleet.Deleted)); n != len(ids) {
			t.Errorf("%d are gone, want %d: %s", n, len(ids), s.dump())
		}
		if n := s.bucket.written() - before; n > 3*len(ids) {
			t.Errorf("%d writes for the ends of %d instances", n, len(ids))
		}
	})
}
