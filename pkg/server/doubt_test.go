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

// lateBy is how late a write lands whose sender got no reply.
const lateBy = 2500 * time.Millisecond

// delayed makes the first write below prefix land late, and blocks all later reads and writes
// there until lift is called, so that its sender can't resolve it. sent is closed when the
// write is sent.
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

// untilHangUp is how long a caller waits after the store was called.
const untilHangUp = 150 * time.Millisecond

// hangsUp returns the context of a caller that gives up after the store was called.
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

// giveUp requests a size and hangs up before the response.
func (p *process) giveUp(size int32, asked <-chan struct{}) {
	p.t.Helper()
	ctx, cancel := p.hangsUp(asked)
	defer cancel()
	if _, err := p.operator("default").UpsertGroup(ctx, &nstancev1.UpsertGroupRequest{Key: "web", Size: &size}); err == nil {
		p.t.Fatal("it was acknowledged")
	}
	time.Sleep(250 * time.Millisecond) // the write's grace period
}

func (p *process) scale(size int32) {
	p.t.Helper()
	if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: &size}); err != nil {
		p.t.Fatal(err)
	}
}

// written makes this term write the groups without a change, so that it need not do so later.
func (p *process) written() {
	p.t.Helper()
	if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", InstanceType: ptr("")}); err != nil {
		p.t.Fatal(err)
	}
}

// storedSize fails unless the store and the leader agree on web's size.
func (s *site) storedSize(p *process, size int32) {
	s.t.Helper()
	s.store.Wait()
	if text := s.get(webAt); !strings.Contains(text, fmt.Sprintf(`"size":%d`, size)) {
		s.t.Errorf("size %d is not what is stored: %s", size, text)
	}
	if g := s.mustGroup(p, "web"); g.GetSize() != size {
		s.t.Errorf("web is %v, want size %d", g, size)
	}
}

// TestAcknowledgedSizeOutlivesALateWrite: a caller hangs up on a change whose write is late;
// another caller is told the previous size. That stays true.
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

// TestAcknowledgedSizeOutlivesALeader: the late write is an earlier leader's.
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

// TestLateWriteIsShutOut: no call follows the change whose write is late. The leader still
// converges on the stored version, permanently.
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

// TestLateWriteOfTheLeaderBefore: it lands after any lease, before any caller was told about the
// group. The leader finds it when it relists the groups.
func TestLateWriteOfTheLeaderBefore(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, replaced(`"renew_interval": "1s", "lease_duration": "10s"`, `"renew_interval": "400ms", "lease_duration": "1s"`))
		p.scale(2)
		sent, lift := s.delayed("groups/", 2*lateBy)
		p.giveUp(5, sent)
		p.ends()
		lift()
		q := s.start(named("b")).awaitLeading()
		s.store.Wait()
		time.Sleep(time.Minute)
		s.storedSize(q, 5)
	})
}

// TestChangeThatNobodyWaitedFor: the write landed, and the caller hung up during the fence
// check. The change takes effect in this term.
func TestChangeThatNobodyWaitedFor(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, replaced(`"lease_duration": "10s"`, `"lease_duration": "1m"`)) // the groups are relisted then
		written, once := make(chan struct{}), sync.Once{}
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if strings.HasPrefix(r.Key, "leader/") {
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			if r.Verb == object.VerbPut && r.Key == webAt {
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

// TestOneReaderOfManyUnknownChanges: however many changes have unknown outcomes, a single reader
// reads the unresponsive store, at a bounded rate.
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

// hangUp requests a refresh and does not wait for the response.
func (p *process) hangUp(asked <-chan struct{}) {
	p.t.Helper()
	ctx, cancel := p.hangsUp(asked)
	defer cancel()
	if _, err := p.operator("default").RefreshConfig(ctx, &nstancev1.RefreshConfigRequest{}); err == nil {
		p.t.Fatal("it was acknowledged")
	}
	time.Sleep(250 * time.Millisecond)
}

// TestAcceptedConfigOutlivesALateWrite: the write of a config that was then reverted lands late.
// The next leader still falls back to the accepted config.
func TestAcceptedConfigOutlivesALateWrite(t *testing.T) {
	for name, then := range map[string]func(*site, *process) *process{
		"and is refreshed": func(s *site, p *process) *process {
			if _, err := p.refresh(); err != nil {
				s.t.Fatal(err)
			}
			return p
		},
		"and no call follows": func(_ *site, p *process) *process { return p },
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
				p.stop() // before the write's outcome can be known
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

// TestTheNextLeaderFallsBackToWhatRan: a late write of another config, an invalid config/, and a
// takeover, which replaces no machine.
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

// TestAppliedIsUnderstoodWithoutAHeader: an earlier version wrote it.
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

// TestAnotherHandThatNeverStops: another writer changes the groups whenever the leader does. The
// leader retries a few times, with back-off, and then returns an error.
func TestAnotherHandThatNeverStops(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.scale(2)
		var writes atomic.Int32
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && r.Key == webAt {
				s.put(webAt, fmt.Sprintf(`{ "rev": %d, "writer": "by hand" }`, writes.Add(1)))
			}
			return objecttest.Outcome{}
		})
		began := time.Now()
		_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))})
		n, took := writes.Load(), time.Since(began)
		refused(t, err, codes.Aborted, "try again")
		if n < 3 || n > 10 || took < time.Duration(n-1)*25*time.Millisecond { // the least of each pause
			t.Errorf("%d writes in %s", n, took)
		}
		s.store.Set(nil)
		p.scale(3)
		p.awaitSize("web", 3)
	})
}
