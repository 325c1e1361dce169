package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestBrokenStream: a stream breaks, the machine is dead, and it is replaced at once.
func TestBrokenStream(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		id := s.living()[0]
		m := s.agents.of(id)
		s.world.Kill(id)
		m.conn.Close()
		p.awaitPhase(id, nstancev1.InstancePhase_INSTANCE_PHASE_DELETED)
		p.awaitSize("web", 2)
	})
}

// TestNewerStreamTakesOver: an agent that reconnects before the server noticed the break is not
// treated as gone.
func TestNewerStreamTakesOver(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		id := s.living()[0]
		old := *s.agents.of(id)
		again := &machine{site: s, id: id, pair: old.pair}
		if err := again.report(p); err != nil {
			t.Fatal(err)
		}
		refused(t, old.ended(t), codes.Aborted, "newer")
		s.world.ForgetCalls()
		old.conn.Close()
		if i, err := p.instance(id); err != nil || !i.GetConnected() {
			t.Errorf("the instance is %v, %v", i, err)
		}
		if calls := s.world.Calls(fake.OpGet); len(calls) > 0 {
			t.Errorf("the provider was asked %d times about an agent that is there", len(calls))
		}
	})
}

// TestStreamsAreCut: an instance's streams end as soon as it is being removed, and it is not
// admitted again.
func TestStreamsAreCut(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		id := s.living()[0] // the oldest leaves first
		m := s.agents.of(id)
		agent := nstancev1.NewAgentServiceClient(m.conn)
		files, err := agent.ReceiveFiles(context.Background(), &nstancev1.ReceiveFilesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		keys, err := agent.KeyGenRequests(context.Background(), &nstancev1.KeyGenRequestsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		var filesErr, keysErr error
		for filesErr == nil { // earlier requests to the agent come first
			_, filesErr = files.Recv()
		}
		for keysErr == nil {
			_, keysErr = keys.Recv()
		}
		for name, err := range map[string]error{"health": m.ended(t), "files": filesErr, "keys": keysErr} {
			if status.Code(err) != codes.Unauthenticated || !rpc.Revoked(err) {
				t.Errorf("%s ended with %v, want the refusal that an agent takes for final", name, err)
			}
		}
		if err := m.report(p); err == nil {
			err = m.ended(t)
			if !rpc.Revoked(err) {
				t.Errorf("the next stream: %v", err)
			}
		}
	})
}

// TestStreamsEndWithTheServer: a server that shuts down closes its agents' streams; the
// provider is not called for them and no instance is replaced.
func TestStreamsEndWithTheServer(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		before := s.living()
		machines := []*machine{s.agents.of(before[0]), s.agents.of(before[1])}
		s.world.ForgetCalls()
		began := time.Now()
		p.ends()
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("took %s, want no waiting for streams", took)
		}
		for _, m := range machines {
			if err := m.ended(t); status.Code(err) != codes.Unavailable {
				t.Errorf("the stream ended with %v", err)
			}
		}
		if calls := s.world.Calls(); len(calls) > 0 {
			t.Errorf("the provider was asked: %+v", calls)
		}
		if r := s.leader(); !r.Released {
			t.Errorf("the lead was not released: %+v", r)
		}
	})
}

// TestHugeMessage: 100 MB are refused, without harm.
func TestHugeMessage(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		huge := strings.Repeat("x", 100<<20)
		_, err := p.registration().RegisterAgent(within(t), &nstancev1.RegisterAgentRequest{Nonce: huge})
		refused(t, err, codes.ResourceExhausted)
		_, err = p.operator("default").DeleteGroup(within(t), &nstancev1.DeleteGroupRequest{Key: huge[:5<<20]})
		refused(t, err, codes.ResourceExhausted)
		id := s.living()[0]
		again := &machine{site: s, id: id, pair: s.agents.of(id).pair}
		if err := again.report(p); err != nil {
			t.Fatal(err)
		}
		_ = again.stream.Send(&nstancev1.ReportHealthRequest{Version: huge}) // the end shows in the receive error
		refused(t, again.ended(t), codes.ResourceExhausted)
		if err := again.report(p); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("web", 2)
		if have := s.living(); len(have) != 2 || have[0] != id {
			t.Errorf("%v live", have)
		}
	})
}

// TestShutdownReport: an agent that is stopped reports it, and its machine, which is gone, is
// replaced.
func TestShutdownReport(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		id := s.living()[0]
		m := s.agents.of(id)
		if err := m.stream.Send(&nstancev1.ReportHealthRequest{Sequence: 2, ShuttingDown: true}); err != nil {
			t.Fatal(err)
		}
		s.world.Kill(id)
		if err := m.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(id, nstancev1.InstancePhase_INSTANCE_PHASE_DELETED)
		p.awaitSize("web", 2)
	})
}
