package server_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/leader"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// holder keeps a health stream open from an address, and reopens it when it ends: soon, or
// after a minute if its identity is shared with another machine.
type holder struct {
	client  nstancev1.AgentServiceClient
	run     string
	stop    context.CancelFunc
	opened  atomic.Int32
	refused atomic.Int32
}

func (p *process) holds(m *machine, source, run string) *holder {
	p.t.Helper()
	addr := p.agentAddr()
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		p.t.Fatal(err)
	}
	e := pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(p.site.trust().Bundle, m.pair), Now: time.Now}
	from := func(ctx context.Context, addr string) (net.Conn, error) { return p.site.connectFrom(ctx, source, addr) }
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithNoProxy(), grpc.WithContextDialer(from),
		grpc.WithTransportCredentials(credentials.NewTLS(e.Client(host, shardID))))
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &holder{client: nstancev1.NewAgentServiceClient(conn), run: strings.Repeat(run, 32), stop: cancel}
	done := make(chan struct{})
	p.t.Cleanup(func() { cancel(); <-done; conn.Close() })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			pause := 200 * time.Millisecond
			if rpc.Shared(h.hold(ctx)) {
				h.refused.Add(1)
				pause = time.Minute
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}()
	return h
}

// hold opens a stream, reports, and returns why the stream ended.
func (h *holder) hold(ctx context.Context) error {
	h.opened.Add(1)
	stream, err := h.client.ReportHealth(rpc.WithRun(ctx, h.run))
	if err != nil {
		return err
	}
	if err := stream.Send(&nstancev1.ReportHealthRequest{Sequence: 1}); err != nil {
		return err
	}
	return stream.RecvMsg(&nstancev1.ReportHealthResponse{})
}

// TestIdentityShared: a second machine with an instance's certificate and key is a problem of
// that instance, reported once, until that machine is gone. The instance lives on.
func TestIdentityShared(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, func(s *site) {
			s.config["MORE"] = `"garbage_collection": { "registration_timeout": "1h" },`
			s.putConfig(shardID)
		})
		id := s.living()[0]
		m := s.agents.of(id)
		watch := p.watchErrors("default")
		m.conn.Close()
		first := p.holds(m, "127.0.0.2", "a")
		time.Sleep(time.Second)
		second := p.holds(m, "127.0.0.3", "b")
		told, _ := watch.next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonIdentityShared && !e.GetOver()
		})
		for _, want := range []string{"127.0.0.2 keeps", "127.0.0.3 is refused"} {
			if !strings.Contains(told.GetMessage(), want) {
				t.Errorf("told %q, want %q in it", told.GetMessage(), want)
			}
		}
		if told.GetInstanceId() != string(id) || told.GetGroup() != "web" {
			t.Errorf("told of %s in %s", told.GetInstanceId(), told.GetGroup())
		}
		time.Sleep(2 * time.Minute)
		if n := first.opened.Load(); n > 3 {
			t.Errorf("the first machine opened %d streams", n)
		}
		if n := second.opened.Load(); n > 7 || second.refused.Load() < 2 {
			t.Errorf("the second machine opened %d streams, and was refused %d times", n, second.refused.Load())
		}
		if n := p.log.count("problem"); n != 1 {
			t.Errorf("%d problems in the log, want 1", n)
		}
		if i, err := p.instance(id); err != nil || !i.GetConnected() || i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING {
			t.Errorf("the instance is %v, %v", i, err)
		} else if !strings.Contains(i.GetLastError(), "127.0.0.3 is refused") {
			t.Errorf("its last error is %q", i.GetLastError())
		}
		again, _ := p.watchErrors("default").next("a late watcher is told", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonIdentityShared
		})
		if again.GetMessage() != told.GetMessage() {
			t.Errorf("a late watcher is told %q", again.GetMessage())
		}
		second.stop()
		time.Sleep(6 * time.Minute)
		watch.next("it is over", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonIdentityShared && e.GetOver() && e.GetInstanceId() == string(id)
		})
		if i, err := p.instance(id); err != nil || i.GetLastError() != "" {
			t.Errorf("afterwards the instance is %v, %v", i, err)
		}
	})
}
