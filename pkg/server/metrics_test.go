package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/metrics/metricstest"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// measured is a site whose config has an address for metrics.
func measured(s *site) {
	s.config["BIND"] += `, "metrics_addr": "127.0.0.1:0"`
	s.putConfig(shardID)
}

// scrape is one scrape of a server, which must follow Prometheus' conventions.
func (p *process) scrape() metricstest.Scrape {
	p.t.Helper()
	got, err := metricstest.Get(p.site.web(loopback), "http://"+p.addr("serving metrics", "addr")+"/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	got.Lint(p.t)
	return got
}

// shows waits until a series has a value. Its label shard is left out.
func (p *process) shows(name string, want float64) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%s is %v", name, want), func() error {
		if got, ok := valueOf(p.scrape(), name); !ok || got != want {
			return fmt.Errorf("it is %v (%t)", got, ok)
		}
		return nil
	})
}

// valueOf returns the value of a series, whose label shard is left out.
func valueOf(s metricstest.Scrape, name string) (float64, bool) {
	for series, v := range s.Values {
		for _, label := range []string{`,shard="` + shardID + `"`, `shard="` + shardID + `",`, `{shard="` + shardID + `"}`} {
			series = strings.Replace(series, label, "", 1)
		}
		if series == name {
			return v, true
		}
	}
	return 0, false
}

// TestMetricsOfLeader: the metrics show a shard as it is, a machine that dies, and how long its
// replacement takes.
func TestMetricsOfLeader(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, measured)
		p := s.start()
		s.populate(p)
		p.awaitSize("web", 2)
		const web = `{group="web",tenant="default"}`
		for name, want := range map[string]float64{
			"nstance_leader": 1, "nstance_ready": 1, "nstance_epoch": 1, "nstance_takeovers_total": 1, "nstance_takeover_duration_seconds_count": 1,
			"nstance_groups": 1, "nstance_agent_streams": 2,
			"nstance_group_wanted_instances" + web: 2, "nstance_group_actual_instances" + web: 2, "nstance_group_ready" + web: 1,
			"nstance_group_outdated_instances" + web: 0, "nstance_group_silent_instances" + web: 0, "nstance_group_creates_failing" + web: 0,
			`nstance_instances{group="web",phase="running",tenant="default"}`:    2,
			`nstance_creates_total{outcome="made"}`:                              2,
			`nstance_certificates_issued_total{kind="agent"}`:                    2,
			`nstance_provider_call_duration_seconds_count{call="create"}`:        2,
			`nstance_audit_events_total{kind="registration",outcome="accepted"}`: 2,
		} {
			p.shows(name, want)
		}
		now := p.scrape()
		if renewals, _ := valueOf(now, `nstance_store_call_duration_seconds_count{area="leader",call="put"}`); renewals < 1 {
			t.Errorf("the lease was renewed %v times", renewals)
		}
		for certificate, least := range map[string]time.Duration{"ca": 9 * 365 * 24 * time.Hour, "server": 29 * 24 * time.Hour} {
			at, _ := valueOf(now, `nstance_certificate_expiry_timestamp_seconds{certificate="`+certificate+`"}`)
			if left := time.Until(time.Unix(int64(at), 0)); left < least {
				t.Errorf("the certificate %s expires in %s", certificate, left)
			}
		}

		id := s.living()[0]
		m := s.agents.of(id)
		s.world.Kill(id)
		m.conn.Close()
		p.awaitPhase(id, nstancev1.InstancePhase_INSTANCE_PHASE_DELETED)
		p.awaitSize("web", 2)
		p.shows(`nstance_creates_total{outcome="made"}`, 3)
		p.shows("nstance_group_actual_instances"+web, 2)
		now = p.scrape()
		sum := 0.0
		for _, stage := range []string{"created", "registered", "ready"} {
			n, _ := valueOf(now, `nstance_replacement_duration_seconds_count{stage="`+stage+`"}`)
			took, _ := valueOf(now, `nstance_replacement_duration_seconds_sum{stage="`+stage+`"}`)
			if n != 1 || took < sum || took > 60 {
				t.Errorf("%v replacements were %s after %v s, and before that after %v s", n, stage, took, sum)
			}
			sum = took
		}
		if sum == 0 {
			t.Error("a replacement takes no time")
		}
		for series := range now.Values {
			if strings.Contains(series, string(id)) || strings.Contains(series, `instance="`) {
				t.Errorf("%s has the id of an instance", series)
			}
		}
	})
}

// calls returns the number of calls to object storage and the provider, without renewals of the
// lease.
func calls(s metricstest.Scrape) (n float64) {
	for series, v := range s.Values {
		store := strings.HasPrefix(series, "nstance_store_call_duration_seconds_count") && !strings.Contains(series, `area="leader"`)
		if store || strings.HasPrefix(series, "nstance_provider_call_duration_seconds_count") {
			n += v
		}
	}
	return n
}

// TestScrapesCallNothing: a scrape is answered from memory.
func TestScrapesCallNothing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, measured)
		p := s.start()
		s.populate(p)
		p.awaitSize("web", 2)
		time.Sleep(time.Minute)
		before := calls(p.scrape())
		for range 20 {
			p.scrape()
		}
		if after := calls(p.scrape()); after != before || before == 0 {
			t.Errorf("20 scrapes cost %v calls, after %v", after-before, before)
		}
	})
}

// TestMetricsOfStandby: a standby has metrics as well, none of what only the leader knows, and
// all of them once it leads.
func TestMetricsOfStandby(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, measured)
		p := s.start()
		s.populate(p)
		p.awaitSize("web", 2)
		q := s.start(named("b"))
		q.awaitHealth(http.StatusOK, "standing by")
		q.shows("nstance_epoch", 1)
		for name, want := range map[string]float64{"nstance_leader": 0, "nstance_ready": 1, "nstance_takeovers_total": 0} {
			q.shows(name, want)
		}
		if groups := q.scrape().Of("nstance_group_wanted_instances"); len(groups) > 0 {
			t.Errorf("the standby has %v", groups)
		}
		p.ends()
		q.awaitLeading()
		for name, want := range map[string]float64{
			"nstance_leader": 1, "nstance_epoch": 2, "nstance_takeovers_total": 1,
			`nstance_group_wanted_instances{group="web",tenant="default"}`: 2, `nstance_group_silent_instances{group="web",tenant="default"}`: 2,
		} {
			q.shows(name, want)
		}
	})
}

// TestMetricsWhileBooting: with the flag, a server that can't read its storage has metrics.
func TestMetricsWhileBooting(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.store.Set(objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped}))
		p := s.start(func(c *server.Config) { c.Bind.Metrics = "127.0.0.1:0" })
		p.await("can't start yet")
		now := p.scrape()
		if ready, ok := valueOf(now, "nstance_ready"); !ok || ready != 0 {
			t.Errorf("it is ready: %v", ready)
		}
		if failed := now.Of("nstance_store_errors_total"); len(failed) == 0 {
			t.Errorf("no call to the storage failed:\n%s", now.Text)
		}
		s.store.Set(nil)
		p.awaitLeading()
		p.shows("nstance_leader", 1)
	})
}

// TestMetricsAreOff: without an address nothing is served, and profiles only with --debug.
func TestMetricsAreOff(t *testing.T) {
	simulated(t, func(t *testing.T) {
		p := newSite(t).start().awaitLeading()
		if n := p.log.count("serving metrics"); n != 0 {
			t.Errorf("%d endpoints are open", n)
		}
		for debug, want := range map[bool]int{false: http.StatusNotFound, true: http.StatusOK} {
			p := newSite(t, measured).start(func(c *server.Config) { c.Debug = debug }).awaitLeading()
			resp, err := p.site.web(loopback).Get("http://" + p.addr("serving metrics", "addr") + "/debug/pprof/cmdline")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("with debug %t, profiles are answered with %d", debug, resp.StatusCode)
			}
		}
	})
}

// TestMetricsAddrTaken: a server whose address for metrics is taken does not start.
func TestMetricsAddrTaken(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, measured)
		p := s.start().awaitLeading()
		taken := p.addr("serving metrics", "addr")
		q := s.start(named("b"), func(c *server.Config) { c.Bind.Metrics = taken })
		<-q.done
		if q.err == nil || !strings.HasPrefix(q.err.Error(), "--metrics-addr: ") || q.log.count("can't start yet") > 0 {
			t.Errorf("it ended with %v", q.err)
		}
		s.config["BIND"] = strings.Replace(s.config["BIND"], `"metrics_addr": "127.0.0.1:0"`, `"metrics_addr": "`+taken+`"`, 1)
		s.putConfig(shardID)
		q = s.start(named("b"))
		<-q.done
		if q.err == nil || !strings.HasPrefix(q.err.Error(), "server.bind.metrics_addr: ") {
			t.Errorf("it ended with %v", q.err)
		}
	})
}
