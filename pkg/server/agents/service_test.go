package agents_test

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/agents"
	"github.com/nstance/nstance/pkg/server/delivery"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const id = fleet.InstanceID("knd01h455vb4pex5vsknk084sn02q")

// shard records its calls.
type shard struct {
	mu     sync.Mutex
	events []string
	report fleet.Report
	gone   bool
	files  agents.Files // nil: none
	done   chan struct{}

	addresses []netip.Addr // set before the test starts
}

var _ agents.Shard = (*shard)(nil)

func newShard() *shard { return &shard{done: make(chan struct{})} }

func (s *shard) say(event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, event)
}

func (s *shard) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.events...)
}

func (s *shard) AgentConnected(fleet.InstanceID) { s.say("connected") }

// AgentDisconnected yields, so that other calls may overtake it.
func (s *shard) AgentDisconnected(fleet.InstanceID, time.Time) {
	for range 100 {
		runtime.Gosched()
	}
	s.say("disconnected")
}

func (s *shard) AgentReport(_ fleet.InstanceID, r fleet.Report) {
	s.say("reported")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report = r
}

func (s *shard) IdentityShared(_ fleet.InstanceID, message string) { s.say("shared: " + message) }

func (s *shard) IdentityNotShared(fleet.InstanceID) { s.say("not shared") }

func (s *shard) Addresses(fleet.InstanceID) []netip.Addr { return s.addresses }

func (s *shard) Gone(fleet.InstanceID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

func (s *shard) Done() <-chan struct{} { return s.done }

func (s *shard) Files() agents.Files {
	if s.files != nil {
		return s.files
	}
	return noFiles{}
}

// noFiles is for tests that do not use files.
type noFiles struct{ agents.Files }

func (noFiles) Reported(fleet.InstanceID, delivery.FileReport) {}
func (noFiles) Disconnected(fleet.InstanceID)                  {}

// stream is the server's end of a health stream.
type stream struct {
	grpc.ServerStream
	ctx    context.Context
	cancel context.CancelFunc
	in     chan *nstancev1.ReportHealthRequest // closed: the agent closed the stream
}

func newStream() *stream { return newStreamOf(id) }

func newStreamOf(id fleet.InstanceID) *stream {
	ctx, cancel := context.WithCancel(rpc.WithCaller(context.Background(), pki.Caller{Role: pki.RoleAgent, Tenant: "default", ID: string(id)}))
	return &stream{ctx: ctx, cancel: cancel, in: make(chan *nstancev1.ReportHealthRequest)}
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) SendAndClose(*nstancev1.ReportHealthResponse) error { return nil }

func (s *stream) Recv() (*nstancev1.ReportHealthRequest, error) {
	select {
	case m, ok := <-s.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// serve handles a stream like the gRPC server: its context ends with the handler.
func serve(service *agents.Service, s *stream) error {
	defer s.cancel()
	return service.ReportHealth(s)
}

func service(s *shard) *agents.Service {
	return agents.New(agents.Config{Shard: func() (agents.Shard, error) { return s, nil }, Now: time.Now})
}

func equal(t *testing.T, have []string, want ...string) {
	t.Helper()
	if len(have) != len(want) {
		t.Fatalf("told %v, want %v", have, want)
	}
	for i := range want {
		if have[i] != want[i] {
			t.Fatalf("told %v, want %v", have, want)
		}
	}
}

func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := newShard()
		s := newStream()
		ended := make(chan error)
		go func() { ended <- serve(service(sh), s) }()
		notice := time.Now().Add(time.Minute)
		s.in <- &nstancev1.ReportHealthRequest{
			Sequence: 7, Version: "v1", ConfigHash: "h", ShuttingDown: true, ReportInterval: durationpb.New(30 * time.Second),
			Termination: &nstancev1.TerminationNotice{Source: "aws-spot", Action: "terminate", At: timestamppb.New(notice)},
		}
		synctest.Wait()
		want := fleet.Report{At: time.Now(), ReportInterval: 30 * time.Second, ShuttingDown: true}
		have := sh.report
		if have.Notice == nil || !have.Notice.At.Equal(notice) {
			t.Errorf("notice %+v", have.Notice)
		}
		if have.Notice = nil; have != want {
			t.Errorf("report %+v, want %+v", have, want)
		}
		time.Sleep(time.Second)
		s.in <- &nstancev1.ReportHealthRequest{Termination: &nstancev1.TerminationNotice{At: &timestamppb.Timestamp{Seconds: -1 << 60}}}
		synctest.Wait()
		if !sh.report.Notice.At.IsZero() {
			t.Errorf("a time that is none: %v", sh.report.Notice.At)
		}
		close(s.in)
		if err := <-ended; err != nil {
			t.Errorf("a stream that the agent closed ended with %v", err)
		}
		equal(t, sh.told(), "connected", "reported", "reported", "disconnected")
	})
}

// TestReportInterval: a reported interval is bounded.
func TestReportInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh, s := newShard(), newStream()
		ended := make(chan error)
		go func() { ended <- serve(service(sh), s) }()
		for _, c := range []struct {
			said *durationpb.Duration
			want time.Duration
		}{
			{nil, 0},
			{durationpb.New(0), 0},
			{durationpb.New(-time.Second), 0},
			{&durationpb.Duration{Seconds: 1 << 60}, 0},
			{&durationpb.Duration{Seconds: 1, Nanos: -1}, 0},
			{durationpb.New(100 * time.Millisecond), 100 * time.Millisecond},
			{durationpb.New(time.Hour), time.Hour},
			{durationpb.New(1000 * time.Hour), time.Hour},
		} {
			time.Sleep(time.Second)
			s.in <- &nstancev1.ReportHealthRequest{ReportInterval: c.said}
			synctest.Wait()
			if sh.report.ReportInterval != c.want || !sh.report.At.Equal(time.Now()) {
				t.Errorf("%v is taken as %s at %s, want %s", c.said, sh.report.ReportInterval, sh.report.At, c.want)
			}
		}
		close(s.in)
		<-ended
	})
}

// TestFlood: reports of an agent that reports continuously are dropped, except the first that
// announces a shutdown, and that of the first files.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh, s := newShard(), newStream()
		ended := make(chan error)
		go func() { ended <- serve(service(sh), s) }()
		for range 1000 {
			s.in <- &nstancev1.ReportHealthRequest{}
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if n := len(sh.told()); n < 10 || n > 30 { // within a second
			t.Errorf("the shard was told %d times", n)
		}
		before := len(sh.told())
		for _, r := range []*nstancev1.ReportHealthRequest{
			{Termination: &nstancev1.TerminationNotice{}}, {Termination: &nstancev1.TerminationNotice{}},
			{ShuttingDown: true}, {ShuttingDown: true, Termination: &nstancev1.TerminationNotice{}},
		} {
			s.in <- r
		}
		synctest.Wait()
		if n := len(sh.told()) - before; n != 2 || !sh.report.ShuttingDown {
			t.Errorf("of the end it was told %d times, want 2: the notice and the shutdown", n)
		}
		before = len(sh.told())
		for range 2 {
			s.in <- &nstancev1.ReportHealthRequest{ConfigHash: "h"}
		}
		synctest.Wait()
		if n := len(sh.told()) - before; n != 1 || sh.report.WithoutFiles {
			t.Errorf("of its files it was told %d times, want once", n)
		}
		close(s.in)
		<-ended
	})
}

// TestEndOfTerm: the server left, not the agent, so it is no disconnect.
func TestEndOfTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := newShard()
		ended := make(chan error)
		go func() { ended <- serve(service(sh), newStream()) }()
		synctest.Wait()
		close(sh.done)
		if err := <-ended; !errors.Is(err, rpc.Unavailable) {
			t.Errorf("ended with %v", err)
		}
		equal(t, sh.told(), "connected")
	})
}

// TestReplaced: the end of a replaced stream is no disconnect, and its reports are dropped.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := newShard()
		svc := service(sh)
		old, ended := newStream(), make(chan error, 2)
		go func() { ended <- serve(svc, old) }()
		synctest.Wait()
		young := newStream()
		go func() { ended <- serve(svc, young) }()
		if err := <-ended; !errors.Is(err, rpc.Conflict) {
			t.Errorf("the old stream ended with %v", err)
		}
		synctest.Wait()
		equal(t, sh.told(), "connected", "connected")
		young.cancel()
		<-ended
		equal(t, sh.told(), "connected", "connected", "disconnected")
	})
}

// TestOrder breaks a stream while its agent opens the next one: the last call to the shard
// must be that the agent is connected.
func TestOrder(t *testing.T) {
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			sh := newShard()
			svc := service(sh)
			old, young := newStream(), newStream()
			ended := make(chan error, 2)
			go func() { ended <- serve(svc, old) }()
			synctest.Wait()
			go old.cancel()
			go func() { ended <- serve(svc, young) }()
			<-ended
			synctest.Wait()
			if told := sh.told(); told[len(told)-1] != "connected" {
				t.Fatalf("a stream is open and the shard was told %v", told)
			}
			young.cancel()
			<-ended
		})
	}
}

// TestGone: an instance that is removed while its stream opens is detected in either order.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := newShard()
		sh.gone = true
		svc := service(sh)
		if err := serve(svc, newStream()); !errors.Is(err, rpc.CertificateRevoked) {
			t.Errorf("a stream of an instance that goes: %v", err)
		}
		equal(t, sh.told())

		sh.gone = false
		ended := make(chan error)
		go func() { ended <- serve(svc, newStream()) }()
		synctest.Wait()
		svc.Cut(id)
		if err := <-ended; !errors.Is(err, rpc.CertificateRevoked) {
			t.Errorf("a stream that is cut: %v", err)
		}
		svc.Cut(id) // no stream is open
	})
}
