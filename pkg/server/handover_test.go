package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestHandover stops a leader: the standby acts at once, with the same machines; none is
// created or deleted.
func TestHandover(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		q := s.start(named("b"))
		q.awaitHealth(http.StatusOK, "standing by")
		q.awaitPeer()
		before := s.living()
		s.world.ForgetCalls()

		began := time.Now()
		p.stop()
		q.awaitLeading()
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("the standby acts after %s", took)
		}
		p.ends()
		if _, body := p.health(); !strings.Contains(body, "refused") {
			t.Errorf("the old server's health endpoint answers %q", body)
		}
		q.takesAgents()
		q.awaitSize("web", 2)
		if after := s.living(); !slices.Equal(before, after) {
			t.Errorf("%v live, were %v", after, before)
		}
		if calls := append(s.world.Calls(fake.OpCreate), s.world.Calls(fake.OpDelete)...); len(calls) > 0 {
			t.Errorf("the provider was asked: %+v", calls)
		}
	})
}

// awaitPeer waits until a standby knows the leader.
func (p *process) awaitPeer() {
	p.t.Helper()
	size := int32(1)
	eventually(p.t, "the standby knows the leader", func() error {
		_, err := p.operator("default").UpsertGroup(within(p.t), &nstancev1.UpsertGroupRequest{Key: "web", Size: &size})
		if addr, ok := rpc.NotLeader(err); !ok || addr == "" {
			return fmt.Errorf("it answers %w", err)
		}
		return nil
	})
}

// TestStandbyNamesTheLeader: each service of a standby returns the leader's address for that
// service.
func TestStandbyNamesTheLeader(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		q := s.start(named("b"))
		q.awaitPeer()
		agent := nstancev1.NewAgentServiceClient(s.dial(q.agentAddr(), s.agents.of(s.living()[0]).pair))
		_, regErr := q.registration().RegisterAgent(within(t), &nstancev1.RegisterAgentRequest{})
		_, opErr := q.operator("default").ListGroups(within(t), &nstancev1.ListGroupsRequest{})
		_, agentErr := agent.SubmitPublicKeys(within(t), &nstancev1.SubmitPublicKeysRequest{})
		for name, c := range map[string]struct {
			err  error
			want string
		}{
			"registration": {regErr, p.registrationAddr()}, "operator": {opErr, p.operatorAddr()}, "agent": {agentErr, p.agentAddr()},
		} {
			addr, ok := rpc.NotLeader(c.err)
			if !ok || addr != c.want || status.Code(c.err) != codes.Unavailable {
				t.Errorf("%s: %v names %q, want %q", name, c.err, addr, c.want)
			}
		}
		// The redirect precedes authentication: that costs a standby nothing.
		operator := issue(t, s.trust().CA, pki.RoleOperator, "default", newID(t, fleet.OperatorKind), time.Hour)
		_, err := nstancev1.NewAgentServiceClient(s.dial(q.agentAddr(), operator)).SubmitPublicKeys(within(t),
			&nstancev1.SubmitPublicKeysRequest{})
		if addr, ok := rpc.NotLeader(err); !ok || addr != p.agentAddr() {
			t.Errorf("an operator at the agents' service: %v names %q, want %q", err, addr, p.agentAddr())
		}
	})
}

// TestWritesAreBounded stops a server whose store is unresponsive: a running write gets a grace
// period, and its caller no acknowledgement.
func TestWritesAreBounded(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		arrived := make(chan struct{}, 1)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "groups/") {
				select {
				case arrived <- struct{}{}:
				default:
				}
				return objecttest.Outcome{Fault: objecttest.Hung}
			}
			return objecttest.Outcome{}
		})
		answer := make(chan error, 1)
		go func() {
			size := int32(5)
			_, err := p.operator("default").UpsertGroup(context.Background(), &nstancev1.UpsertGroupRequest{Key: "web", Size: &size})
			answer <- err
		}()
		<-arrived
		began := time.Now()
		p.ends()
		if took := time.Since(began); took < 200*time.Millisecond || took > 250*time.Millisecond {
			t.Errorf("stopping took %s, want the 200 ms that a write gets", took)
		}
		if err := <-answer; status.Code(err) != codes.Unavailable {
			t.Errorf("the caller was answered %v", err)
		}
		if !s.leader().Released {
			t.Error("the lead was not released")
		}
	})
}

// TestSlowWriteLands: a slow write at the end of a term is not cut off.
func TestSlowWriteLands(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		arrived := make(chan struct{}, 1)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "groups/") {
				arrived <- struct{}{}
				return objecttest.Outcome{Latency: 60 * time.Millisecond}
			}
			return objecttest.Outcome{}
		})
		go func() {
			size := int32(5)
			_, _ = p.operator("default").UpsertGroup(context.Background(), &nstancev1.UpsertGroupRequest{Key: "web", Size: &size})
		}()
		<-arrived
		p.ends()
		if text := s.get(webAt); !strings.Contains(text, `"size":5`) {
			t.Errorf("stored: %s", text)
		}
	})
}

// onLine is a log that calls a function at one line, before its writer continues.
type onLine struct {
	slog.Handler
	message string
	do      func()
}

func (h onLine) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.do()
	}
	return h.Handler.Handle(ctx, r)
}

// TestReadyIsServed: a server that logs that it is ready serves a call made at that moment.
func TestReadyIsServed(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		answered := make(chan error, 1)
		starting := make(chan struct{})
		var p *process
		p = s.start(func(c *server.Config) {
			c.Logger = slog.New(onLine{Handler: c.Logger.Handler(), message: "ready to act", do: func() {
				<-starting
				_, err := p.group("web")
				answered <- err
			}})
		})
		close(starting)
		select {
		case err := <-answered:
			if err != nil {
				t.Errorf("called when it was ready to act: %v", err)
			}
		case <-time.After(patience):
			t.Error("it is not ready to act")
		}
	})
}

// TestBrokenConfigRotatesNobody: the config becomes invalid, or vanishes, before the next
// takeover. The last accepted one stays active.
func TestBrokenConfigRotatesNobody(t *testing.T) {
	for name, spoil := range map[string]func(*site){
		"invalid": func(s *site) {
			s.put("config/"+shardID+".jsonc", strings.ReplaceAll(s.text(), `"subnet_pool": "workers"`, `"subnet_pool": "wrkers"`))
		},
		"no JSON": func(s *site) { s.put("config/"+shardID+".jsonc", "{") },
		"gone":    func(s *site) { _ = s.inner.Delete(context.Background(), "config/"+shardID+".jsonc") },
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t)
			before := s.living()
			applied := s.accepted()
			if applied != s.text() {
				t.Fatal("the accepted config was not kept as it is")
			}
			spoil(s)
			p.ends()
			s.world.ForgetCalls()
			q := s.successor()
			q.awaitSize("web", 2)
			if after := s.living(); !slices.Equal(before, after) || len(s.world.Calls(fake.OpCreate)) > 0 {
				t.Errorf("%v live, were %v", after, before)
			}
			resp, err := q.operator("default").GetConfigStatus(within(t), &nstancev1.GetConfigStatusRequest{})
			if err != nil || !resp.GetRunningApplied() || len(resp.GetViolations()) == 0 {
				t.Errorf("config status: %v, %v", resp, err)
			}
			if s.accepted() != applied {
				t.Error("the accepted config was written over")
			}
		}))
	}
}

// TestGroupOutlivesItsStaticDefinition: a group with a record keeps its machines when static
// config drops it; one without is emptied.
func TestGroupOutlivesItsStaticDefinition(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("GROUPS", `"default": { "web": { "template": "knd", "size": 2 }, "plain": { "template": "knd", "size": 1 } }`))
		p := s.start()
		s.populate(p)
		p.awaitSize("plain", 1)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("web", 3)
		kept := map[fleet.InstanceID]bool{}
		for _, r := range s.records() {
			kept[r.ID] = r.Group == "web"
		}
		s.config["GROUPS"] = `"default": {}`
		s.putConfig(shardID)
		p.ends()
		q := s.successor()
		q.awaitSize("web", 3)
		q.awaitSize("plain", 1) // no takeover accepts its removal
		q.refreshes(updated, "default/plain")
		eventually(t, "the group without an entry is emptied", func() error {
			for _, id := range s.living() {
				if !kept[id] {
					return fmt.Errorf("%s lives", id)
				}
			}
			return nil
		})
		if g, err := q.group("web"); err != nil || g.GetIsStatic() || g.GetTemplate() != "knd" || len(s.living()) != 3 {
			t.Errorf("web is %v, %v; %d live", g, err, len(s.living()))
		}
	})
}

// TestTwoStartsNeverShareAHolder: a restarted server is another holder, with a later epoch.
func TestTwoStartsNeverShareAHolder(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		first := s.leader()
		p.ends()
		s.start().awaitLeading()
		if second := s.leader(); second.Holder == first.Holder || second.Epoch <= first.Epoch {
			t.Errorf("first %+v, then %+v", first, second)
		}
	})
}
