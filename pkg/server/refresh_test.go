package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/leader"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

const (
	updated   = nstancev1.RefreshOutcome_REFRESH_OUTCOME_UPDATED
	unchanged = nstancev1.RefreshOutcome_REFRESH_OUTCOME_UNCHANGED
	appliedAt = "applied/" + shardID + ".jsonc"
	configAt  = "config/" + shardID + ".jsonc"
)

// refresh requests a refresh that accepts removals.
func (p *process) refresh(accept ...string) (*nstancev1.RefreshConfigResponse, error) {
	return p.operator("default").RefreshConfig(within(p.t), &nstancev1.RefreshConfigRequest{AcceptRemovals: accept})
}

// refreshes expects an outcome.
func (p *process) refreshes(want nstancev1.RefreshOutcome, accept ...string) *nstancev1.RefreshConfigResponse {
	p.t.Helper()
	resp, err := p.refresh(accept...)
	if err != nil || resp.GetOutcome() != want {
		p.t.Fatalf("refreshed: %v, %v; want %s", resp, err, want)
	}
	return resp
}

func (p *process) configStatus() *nstancev1.GetConfigStatusResponse {
	p.t.Helper()
	resp, err := p.viewer().GetConfigStatus(within(p.t), &nstancev1.GetConfigStatusRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	return resp
}

// replace stores the config with texts replaced, in pairs.
func (s *site) replace(pairs ...string) {
	s.t.Helper()
	text := strings.NewReplacer(pairs...).Replace(s.text())
	if text == s.text() {
		s.t.Fatalf("nothing to replace by %q", pairs)
	}
	s.put(configAt, text)
}

// replaced is replace, for running.
func replaced(pairs ...string) func(*site) {
	return func(s *site) { s.replace(pairs...) }
}

func TestRefreshUpdates(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		before, machines := p.configStatus(), s.living()
		s.world.ForgetCalls()
		s.replace(`{ "n": 1 }`, `{ "n": 2 }`, `"size": 2`, `"size": 3`, `"lease_duration": "10s"`, `"lease_duration": "12s"`)
		resp := p.refreshes(updated)
		after := p.configStatus()
		if resp.GetEtag() == before.GetEtag() || resp.GetEtag() != after.GetEtag() || len(resp.GetRestartRequired()) > 0 ||
			after.GetRunningApplied() {
			t.Errorf("answered %v, status %v, before %v", resp, after, before)
		}
		if s.accepted() != s.get(configAt) {
			t.Error("the accepted config was not kept")
		}
		p.awaitSize("web", 3)
		if g, err := p.group("web"); err != nil || g.GetVars().GetFields()["n"].GetNumberValue() != 2 {
			t.Errorf("web is %v, %v", g, err)
		}
		for _, id := range machines { // streams survive, and vars rotate no instance
			if i, err := p.instance(id); err != nil || !i.GetConnected() {
				t.Errorf("%s is %v, %v", id, i, err)
			}
			if err := s.agents.of(id).stream.Send(&nstancev1.ReportHealthRequest{Sequence: 2, Version: "test"}); err != nil {
				t.Errorf("the stream of %s: %v", id, err)
			}
		}
		if have := s.living(); !slices.Equal(have[:2], machines) || len(s.world.Calls(fake.OpDelete)) > 0 {
			t.Errorf("%v live, were %v", have, machines)
		}
		eventually(t, "others are told of the new lease", func() error {
			if r := s.leader(); r.LeaseDuration != 12*time.Second {
				return fmt.Errorf("the record says %s", r.LeaseDuration)
			}
			return nil
		})
		if n := p.log.count("leading"); n != 1 {
			t.Errorf("it took over %d times", n)
		}
	})
}

// TestRefreshUnchanged costs one read.
func TestRefreshUnchanged(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		var requests atomic.Int32
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if !strings.HasPrefix(r.Key, "leader/") && !strings.HasPrefix(r.Key, "cluster/operator/") { // the caller is new
				requests.Add(1)
			}
			return objecttest.Outcome{}
		})
		resp := p.refreshes(unchanged)
		if n := requests.Load(); n != 1 {
			t.Errorf("it cost %d requests", n)
		}
		if resp.GetEtag() != p.configStatus().GetEtag() {
			t.Errorf("answered %v", resp)
		}
	})
}

// TestRefreshRefusesAnInvalidConfig: every problem is returned, the running config stays active,
// and the status shows it until the config is corrected.
func TestRefreshRefusesAnInvalidConfig(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*site)
		want  []string
	}{
		"several problems": {
			spoil: func(s *site) { s.replace(`"size": 2`, `"size": -2, "colour": "blue"`, `"closed" }`, `"clsed" }`) },
			want:  []string{"groups.default.web.colour", "groups.default.web.size", "templates.big.subnet_pool"},
		},
		"no JSON": {spoil: func(s *site) { s.put(configAt, `{ "cluster": `) }, want: []string{""}},
		"gone":    {spoil: func(s *site) { _ = s.inner.Delete(context.Background(), configAt) }, want: []string{""}},
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t)
			before, group, good := p.configStatus(), s.mustGroup(p, "web"), s.get(configAt)
			c.spoil(s)
			for range 2 {
				_, err := p.refresh()
				refused(t, err, codes.InvalidArgument, configAt)
				if have := fields(err); !slices.Equal(have, c.want) {
					t.Errorf("violations of %q, want %q", have, c.want)
				}
			}
			if s.accepted() != good {
				t.Error("it was kept as accepted")
			}
			if after := s.mustGroup(p, "web"); after.GetEtag() != group.GetEtag() {
				t.Errorf("the group went from %v to %v", group, after)
			}
			st := p.configStatus()
			if !st.GetRunningApplied() || len(st.GetViolations()) != len(c.want) {
				t.Errorf("status: %v", st)
			}
			if there := name != "gone"; (st.GetEtag() != "") != there || (st.GetLastModified() != nil) != there {
				t.Errorf("status of what is in the bucket: %v", st)
			}
			errs := p.watchErrors("default")
			errs.next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
				return e.GetReason() == leader.ReasonConfig && !e.GetOver()
			})

			s.put(configAt, good)
			p.refreshes(updated)
			errs.next("it is over", func(e *nstancev1.WatchErrorsResponse) bool {
				return e.GetReason() == leader.ReasonConfig && e.GetOver() && e.GetMessage() == "" && e.GetAt() != nil
			})
			if st := p.configStatus(); st.GetRunningApplied() || len(st.GetViolations()) > 0 || st.GetEtag() != before.GetEtag() {
				t.Errorf("status when mended: %v", st)
			}
			for _, e := range p.watchErrors("default").quiet() {
				t.Errorf("told after it was mended: %v", e)
			}
			p.refreshes(unchanged)
		}))
	}
}

func (s *site) mustGroup(p *process, key string) *nstancev1.GroupStatus {
	s.t.Helper()
	g, err := p.group(key)
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

// TestTwoRefreshesAtOnce: one applies the config, the other finds it applied.
func TestTwoRefreshesAtOnce(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		s.replace(`"size": 2`, `"size": 1`)
		var writes atomic.Int32
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "applied/") {
				writes.Add(1)
				return objecttest.Outcome{Latency: 50 * time.Millisecond}
			}
			return objecttest.Outcome{}
		})
		outcomes := make(chan nstancev1.RefreshOutcome, 5)
		for range cap(outcomes) {
			client := p.operator("default")
			go func() {
				resp, err := client.RefreshConfig(within(t), &nstancev1.RefreshConfigRequest{})
				if err != nil {
					t.Error(err)
				}
				outcomes <- resp.GetOutcome()
			}()
		}
		count := map[nstancev1.RefreshOutcome]int{}
		for range cap(outcomes) {
			count[<-outcomes]++
		}
		if count[updated] != 1 || count[unchanged] != 4 || writes.Load() != 1 {
			t.Errorf("outcomes %v, %d writes", count, writes.Load())
		}
	})
}

// TestRefreshNeedsARestart: fields that can't change at run time are reported and unchanged;
// everything else takes effect.
func TestRefreshNeedsARestart(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		before := s.living()
		s.world.ForgetCalls()
		s.replace(`"zone": "z"`, `"zone": "elsewhere"`, `"operator_addr": "127.0.0.1:0"`, `"operator_addr": "127.0.0.1:4321"`,
			`"size": 2`, `"size": 3`, `"shutdown_timeout": "2s",`, `"shutdown_timeout": "2s", "leader_network": { "ipv4": "10.0.0.9" },`)
		want := []string{"server.provider", "server.bind", "server.leader_network"}
		if resp := p.refreshes(updated); !slices.Equal(resp.GetRestartRequired(), want) {
			t.Errorf("answered %v, want %v", resp, want)
		}
		if resp := p.refreshes(unchanged); !slices.Equal(resp.GetRestartRequired(), want) {
			t.Errorf("the second time: %v, want %v", resp, want)
		}
		if st := p.configStatus(); !slices.Equal(st.GetRestartRequired(), want) {
			t.Errorf("status: %v, want %v", st, want)
		}
		p.awaitSize("web", 3)
		if have := s.living(); !slices.Equal(have[:2], before) || len(s.world.Calls(fake.OpDelete)) > 0 {
			t.Errorf("%v live, were %v", have, before)
		}
		s.putConfig(shardID)
		if resp := p.refreshes(updated); len(resp.GetRestartRequired()) > 0 || len(p.configStatus().GetRestartRequired()) > 0 {
			t.Errorf("taken back: %v", resp)
		}
	})
}

// TestRefreshMovesTheLead: the standby of a leader that accepted such a change is restarted with
// it.
func TestRefreshMovesTheLead(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		q := s.start(named("b"))
		q.awaitPeer()
		s.replace(`"zone": "z"`, `"zone": "elsewhere"`)
		p.refreshes(updated)
		p.ends()
		<-q.done
		if q.err == nil || !strings.Contains(q.err.Error(), "server.provider") {
			t.Errorf("the standby ended with %v", q.err)
		}
	})
}

// TestRefreshTiming: a shorter lease takes effect without ending a term.
func TestRefreshTiming(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		s.replace(`"renew_interval": "1s", "lease_duration": "10s", "fence_window": "100ms"`,
			`"renew_interval": "200ms", "lease_duration": "2s", "fence_window": "400ms"`)
		p.refreshes(updated)
		first := s.leader()
		eventually(t, "renewals come at the new pace", func() error {
			r := s.leader()
			if r.FenceWindow != 400*time.Millisecond || r.LeaseDuration != 2*time.Second || r.Rev < first.Rev+5 {
				return fmt.Errorf("the record is %+v", r)
			}
			return nil
		})
		if r := s.leader(); r.Epoch != first.Epoch {
			t.Errorf("the lead went from %+v to %+v", first, r)
		}
	})
}
