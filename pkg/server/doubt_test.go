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

// lateBy is how late a write lands whose sender was told nothing.
const lateBy = 2500 * time.Millisecond

// delayed makes the first write below prefix reach the store late, and lets nobody
// read or write there after it until that is lifted: its sender can't find out.
// sent closes when the write is sent.
func (s *site) delayed(prefix string, by time.Duration) (sent <-chan struct{}, lift func()) {
	write := make(chan struct{})
	var began atomic.Bool
	s.store.Set(func(r objecttest.Request) objecttest.Outcome {
		switch {
		case !strings.HasPrefix(r.Key, prefix):
			return objecttest.Outcome{}
		case r.Verb == object.VerbPut && !began.Swap(true):
			close(write)
			return objecttest.Outcome{Fault: objecttest.Late, Delay: by}
		case began.Load():
			return objecttest.Outcome{Fault: objecttest.Dropped}
		}
		return objecttest.Outcome{}
	})
	return write, func() { s.store.Set(nil) }
}

// untilHangUp is how long a caller goes on waiting once the store was asked.
const untilHangUp = 150 * time.Millisecond

// hangsUp is the context of a caller that gives up, but not before there is
// something to give up on.
func (p *process) hangsUp(asked <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(within(p.t))
	go func() {
		select {
		case <-asked:
			time.AfterFunc(untilHangUp, cancel)
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// giveUp asks for a size and hangs up before there is an answer.
func (p *process) giveUp(size int32, asked <-chan struct{}) {
	p.t.Helper()
	ctx, cancel := p.hangsUp(asked)
	defer cancel()
	if _, err := p.operator("default").UpsertGroup(ctx, &nstancev1.UpsertGroupRequest{Key: "web", Size: &size}); err == nil {
		p.t.Fatal("it was acknowledged")
	}
	time.Sleep(250 * time.Millisecond) // the write's grace
}

func (p *process) scale(size int32) {
	p.t.Helper()
	if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: &size}); err != nil {
		p.t.Fatal(err)
	}
}

// written has this term write the groups, with nothing in them that matters, so that
// it need not do it in the middle of something else.
func (p *process) written() {
	p.t.Helper()
	if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", InstanceType: ptr("")}); err != nil {
		p.t.Fatal(err)
	}
}

// storedSize fails unless the store and the leader agree that web has that size.
func (s *site) storedSize(p *process, size int32) {
	s.t.Helper()
	s.store.Wait()
	if text := s.get(groupsAt); !strings.Contains(text, fmt.Sprintf(`"size": %d`, size)) {
		s.t.Errorf("size %d is not what is stored: %s", size, text)
	}
	if g := s.mustGroup(p, "web"); g.GetSize() != size {
		s.t.Errorf("web is %v, want size %d", g, size)
	}
}

// TestAcknowledgedSizeOutlivesALateWrite: a caller hangs up on a change whose write
// is late; another is told that the size is what it was. That stays true.
func TestAcknowledgedSizeOutlivesALateWrite(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.scale(2)
		sent, lift := s.delayed("groups/", lateBy)
		p.giveUp(5, sent)
		lift()
		p.scale(2)
		s.storedSize(p, 2)
	})
}

// TestAcknowledgedSizeOutlivesALeader: the late write is that of a leader before.
func TestAcknowledgedSizeOutlivesALeader(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.scale(2)
		sent, lift := s.delayed("groups/", lateBy)
		p.giveUp(5, sent)
		p.ends()
		lift()
		q := s.start(named("b")).awaitLeading()
		q.scale(2)
		s.storedSize(q, 2)
	})
}

// TestLateWriteIsShutOut: nobody asks for anything after the change whose write is
// late. The leader goes by what the store holds all the same, for good.
func TestLateWriteIsShutOut(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.scale(2)
		sent, lift := s.delayed("groups/", lateBy)
		p.giveUp(5, sent)
		lift()
		s.storedSize(p, 2)
	})
}

// TestLateWriteOfTheLeaderBefore: it comes later than any lease, and there it finds
// that it can't land any more.
func TestLateWriteOfTheLeaderBefore(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, replaced(`"renew_interval": "1s", "lease_duration": "10s"`, `"renew_interval": "400ms", "lease_duration": "1s"`))
		p.scale(2)
		sent, lift := s.delayed("groups/", 2*lateBy)
		p.giveUp(5, sent)
		p.ends()
		lift()
		q := s.start(named("b")).awaitLeading()
		s.storedSize(q, 2)
	})
}

// TestChangeThatNobodyWaitedFor: the write landed, and the caller hung up while the
// leader looked whether it still leads. The change takes effect in this term.
func TestChangeThatNobodyWaitedFor(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, replaced(`"lease_duration": "10s"`, `"lease_duration": "1m"`)) // the groups are read again then
		written, once := make(chan struct{}), sync.Once{}
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if strings.HasPrefix(r.Key, "leader/") {
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			if r.Verb == object.VerbPut && r.Key == groupsAt {
				once.Do(func() { close(written) })
			}
			return objecttest.Outcome{}
		})
		time.Sleep(150 * time.Millisecond) // more than the fence window
		p.giveUp(1, written)
		s.store.Set(nil)
		p.awaitSize("web", 1)
	})
}

// TestOneReaderOfManyUnknownChanges: however many changes end unknown, the store
// that does not answer is asked by one, and not more often each time.
func TestOneReaderOfManyUnknownChanges(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		var reads atomic.Int32
		asked, once := make(chan struct{}), sync.Once{}
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if !strings.HasPrefix(r.Key, "groups/") {
				return objecttest.Outcome{}
			}
			once.Do(func() { close(asked) })
			if r.Verb == object.VerbGet {
				reads.Add(1)
			}
			return objecttest.Outcome{Fault: objecttest.Dropped}
		})
		for n := range int32(6) {
			p.giveUp(3+n, asked)
		}
		reads.Store(0)
		time.Sleep(3 * time.Second)
		if n := reads.Load(); n > 6 {
			t.Errorf("the groups were read %d times in 3 s", n)
		}
		s.store.Set(nil)
		eventually(t, "the store and the leader agree", func() error {
			_, err := p.group("web")
			return err
		})
	})
}

// accepted is the config that applied/ holds, without its header.
func (s *site) accepted() string {
	s.t.Helper()
	text := s.get(appliedAt)
	if header, body, ok := strings.Cut(text, "\n"); ok && strings.HasPrefix(header, `// {"epoch":`) {
		return body
	}
	return text
}

// hangUp asks for a refresh and does not wait for its answer.
func (p *process) hangUp(asked <-chan struct{}) {
	p.t.Helper()
	ctx, cancel := p.hangsUp(asked)
	defer cancel()
	if _, err := p.operator("default").RefreshConfig(ctx, &nstancev1.RefreshConfigRequest{}); err == nil {
		p.t.Fatal("it was acknowledged")
	}
	time.Sleep(250 * time.Millisecond)
}

// TestAcceptedConfigOutlivesALateWrite: the write of a config that was then taken
// back lands late. What was accepted is still what the next leader falls back to.
func TestAcceptedConfigOutlivesALateWrite(t *testing.T) {
	for name, then := range map[string]func(*site, *process) *process{
		"and is refreshed": func(s *site, p *process) *process {
			if _, err := p.refresh(); err != nil {
				s.t.Fatal(err)
			}
			return p
		},
		"and nobody asks": func(_ *site, p *process) *process { return p },
		"and the leader changes": func(s *site, p *process) *process {
			p.ends()
			return s.start(named("b")).awaitLeading()
		},
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t)
			good := s.get(configAt)
			sent, lift := s.delayed("applied/", lateBy)
			s.replace(`"subnet_pool": "workers", "vars"`, `"subnet_pool": "workers", "instance_type": "huge", "vars"`)
			p.hangUp(sent)
			s.put(configAt, good)
			if name == "and the leader changes" {
				p.stop() // while nothing can be known of the write
				<-p.done
			}
			lift()
			then(s, p)
			s.store.Wait()
			if s.accepted() != good {
				t.Errorf("accepted is now: %s", s.get(appliedAt))
			}
		}))
	}
}

// TestTheNextLeaderFallsBackToWhatRan: the whole of it: a late write of another
// config, a broken config/, and a takeover, which replaces no machine.
func TestTheNextLeaderFallsBackToWhatRan(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		good, machines := s.get(configAt), s.living()
		sent, lift := s.delayed("applied/", lateBy)
		s.replace(`"subnet_pool": "workers", "vars"`, `"subnet_pool": "workers", "instance_type": "huge", "vars"`)
		p.hangUp(sent)
		s.put(configAt, good)
		lift()
		if _, err := p.refresh(); err != nil {
			t.Fatal(err)
		}
		s.store.Wait()
		s.put(configAt, "{")
		p.ends()
		s.world.ForgetCalls()
		q := s.successor()
		q.awaitSize("web", 2)
		if g := s.mustGroup(q, "web"); g.GetInstanceType() == "huge" || fmt.Sprint(s.living()) != fmt.Sprint(machines) {
			t.Errorf("web is %v; %v live, were %v", g, s.living(), machines)
		}
	})
}

// TestAppliedIsUnderstoodWithoutAHeader: a server before this one wrote it.
func TestAppliedIsUnderstoodWithoutAHeader(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.ends()
		good := s.get(configAt)
		s.put(appliedAt, good)
		s.put(configAt, "{")
		q := s.successor()
		if s.accepted() != good || s.get(appliedAt) == good {
			t.Errorf("applied is %s", s.get(appliedAt))
		}
		q.awaitSize("web", 2)
	})
}

// TestAnotherHandThatNeverStops: somebody writes the groups whenever the leader does.
// It tries again a few times, not as fast as it can, and then says so.
func TestAnotherHandThatNeverStops(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.scale(2)
		var writes atomic.Int32
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && r.Key == groupsAt {
				s.put(groupsAt, fmt.Sprintf(`{ "rev": %d, "writer": "a person", "groups": {} }`, writes.Add(1)))
			}
			return objecttest.Outcome{}
		})
		began := time.Now()
		_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))})
		n, took := writes.Load(), time.Since(began)
		refused(t, err, codes.Aborted, "somebody else")
		if n < 3 || n > 10 || took < time.Duration(n-1)*25*time.Millisecond { // the least of each pause
			t.Errorf("%d writes in %s", n, took)
		}
		s.store.Set(nil)
		p.scale(3)
		p.awaitSize("web", 3)
	})
}
