// Package monitoring tests the alerts of monitoring/rules.yaml with Prometheus' own engine. It is
// a module of its own, since the product does not depend on Prometheus.
package monitoring

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
)

const file = "../../monitoring/rules.yaml"

// ruleGroups are the rules of the file, which must be valid.
func ruleGroups(t *testing.T, p parser.Parser) []rulefmt.RuleGroup {
	t.Helper()
	groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, p, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatalf("the rules are not valid: %v", errs)
	}
	return groups.Groups
}

// alerting returns the file's alerts.
func alerting(t *testing.T) (all []*rules.AlertingRule) {
	t.Helper()
	p := parser.NewParser(parser.Options{})
	for _, g := range ruleGroups(t, p) {
		for _, r := range g.Rules {
			expr, err := p.ParseExpr(r.Expr)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor),
				labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler)))
		}
	}
	return all
}

// firing evaluates all alerts each 30 s on the series, until a time, and returns the summaries of
// those that fire then.
func firing(t *testing.T, series string, until time.Duration) (summaries []string) {
	t.Helper()
	store := promqltest.LoadedStorage(t, series)
	t.Cleanup(func() { _ = store.Close() })
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery), storage.Queryable(store))
	start := time.Unix(0, 0)
	for _, r := range alerting(t) {
		for at := time.Duration(0); at <= until; at += 30 * time.Second {
			if _, err := r.Eval(context.Background(), 0, start.Add(at), query, &url.URL{}, 0); err != nil {
				t.Fatalf("%s: %v", r.Name(), err)
			}
		}
		for _, a := range r.ActiveAlerts() {
			if a.State != rules.StateFiring {
				continue
			}
			summaries = append(summaries, r.Name()+": "+a.Annotations.Get("summary"))
			if text := a.Annotations.Get("description"); strings.Contains(text+a.Annotations.Get("summary"), "<error") {
				t.Errorf("%s: a template is broken: %s", r.Name(), text)
			}
		}
	}
	slices.Sort(summaries)
	return summaries
}

// healthy are the series of a shard with a leader a and a standby b, for 60 samples at 30 s, in
// which nothing is wrong. A test replaces lines of it.
const healthy = `nstance_leader{shard="dev",instance="a"} 1x60
nstance_leader{shard="dev",instance="b"} 0x60
nstance_ready{shard="dev",instance="a"} 1x60
nstance_ready{shard="dev",instance="b"} 1x60
nstance_store_call_duration_seconds_count{shard="dev",instance="a",call="get",area="groups"} 0+30x60
nstance_store_errors_total{shard="dev",instance="a",call="put",area="leader",kind="conflict"} 0+30x60
nstance_group_wanted_instances{shard="dev",instance="a",tenant="default",group="web"} 3x60
nstance_group_actual_instances{shard="dev",instance="a",tenant="default",group="web"} 3x60
nstance_group_silent_instances{shard="dev",instance="a",tenant="default",group="web"} 0x60
nstance_group_creates_failing{shard="dev",instance="a",tenant="default",group="web"} 0x60
nstance_certificate_expiry_timestamp_seconds{shard="dev",instance="a",certificate="ca"} 315360000x60
nstance_certificate_expiry_timestamp_seconds{shard="dev",instance="a",certificate="server"} 31536000x60
nstance_agent_connected{instance="m"} 1x60`

// with replaces the values of the one series that begins with name.
func with(t *testing.T, replacements ...[2]string) string {
	t.Helper()
	lines := strings.Split(healthy, "\n")
	for _, r := range replacements {
		found := 0
		for n, line := range lines {
			if strings.HasPrefix(line, r[0]) {
				series, _, _ := strings.Cut(line, "} ")
				lines[n] = series + "} " + r[1]
				found++
			}
		}
		if found == 0 {
			lines = append(lines, r[0]+" "+r[1])
		} else if found > 1 {
			t.Fatalf("%d series begin with %s", found, r[0])
		}
	}
	return "load 30s\n  " + strings.Join(lines, "\n  ")
}

func TestAlerts(t *testing.T) {
	const m = time.Minute
	type change = [2]string
	failing := `nstance_store_errors_total{shard="dev",instance="a",call="get",area="groups",kind="timeout"}`
	for name, c := range map[string]struct {
		changes []change
		quiet   time.Duration // at which nothing fires yet; 0: not checked
		at      time.Duration
		want    []string
	}{
		"nothing is wrong": {at: 30 * m},
		"no leader": {
			[]change{{`nstance_leader{shard="dev",instance="a"}`, "1x10 0x50"}}, 7 * m, 8 * m,
			[]string{"NstanceNoLeader: Shard dev has no leader"},
		},
		"the servers of a shard are down, and those of another run": {
			[]change{
				{`nstance_leader{shard="dev",instance="a"}`, "1x10 stale"}, {`nstance_leader{shard="dev",instance="b"}`, "0x10 stale"},
				{`nstance_leader{shard="other",instance="c"}`, "1x60"},
			}, 7 * m, 8 * m,
			[]string{"NstanceNoLeader: Shard dev has no leader"},
		},
		"the leader is down, and its standby leads": {
			[]change{{`nstance_leader{shard="dev",instance="a"}`, "1x10 stale"}, {`nstance_leader{shard="dev",instance="b"}`, "0x12 1x48"}},
			0, 20 * m, nil,
		},
		"a shard never had a leader": {
			[]change{{`nstance_leader{shard="new",instance="c"}`, "_x10 0x50"}}, 6 * m, 8 * m,
			[]string{"NstanceNoLeader: Shard new has no leader"},
		},
		"a standby takes over": {
			[]change{{`nstance_leader{shard="dev",instance="a"}`, "1x10 0x50"}, {`nstance_leader{shard="dev",instance="b"}`, "0x12 1x48"}},
			0, 20 * m, nil,
		},
		"no server is scraped": {
			[]change{{`nstance_leader{shard="dev",instance="a"}`, "1x5 stale"}, {`nstance_leader{shard="dev",instance="b"}`, "0x5 stale"}},
			4 * m, 9 * m,
			[]string{"NstanceNoLeader: Shard dev has no leader", "NstanceNotScraped: No server has metrics"},
		},
		"a standby is not ready": {
			[]change{{`nstance_ready{shard="dev",instance="b"}`, "1x10 0x50"}}, 9 * m, 11 * m,
			[]string{"NstanceServerNotReady: Server b of shard dev is not ready"},
		},
		"storage is unreachable": {
			[]change{{failing, "0x10 0+30x50"}}, 7 * m, 10 * m,
			[]string{"NstanceStorageUnreachable: Server a of shard dev can't use object storage"},
		},
		"a few calls fail": {[]change{{failing, "0x10 0+5x50"}}, 0, 20 * m, nil},
		"a group is short": {
			[]change{{"nstance_group_actual_instances", "3x10 2x50"}}, 14 * m, 17 * m,
			[]string{"NstanceGroupShort: Group default/web of shard dev is short"},
		},
		"a machine is replaced": {[]change{{"nstance_group_actual_instances", "3x10 2x6 3x44"}}, 0, 25 * m, nil},
		"creates fail": {
			[]change{{"nstance_group_creates_failing", "0x10 1x50"}}, 9 * m, 11 * m,
			[]string{"NstanceCreatesFailing: Creates of group default/web of shard dev fail"},
		},
		"agents are silent": {
			[]change{{"nstance_group_silent_instances", "0x10 2x50"}}, 9 * m, 11 * m,
			[]string{"NstanceSilentAgents: 2 agents of group default/web of shard dev are silent"},
		},
		"agents reconnect after a takeover": {[]change{{"nstance_group_silent_instances", "3x4 0x56"}}, 0, 20 * m, nil},
		"the provider throttles": {
			[]change{{`nstance_provider_throttled_seconds{shard="dev",instance="a",calls="reads"}`, "0+30x60"}}, 9 * m, 11 * m,
			[]string{"NstanceThrottled: The provider throttles reads of shard dev"},
		},
		"the CA expires": {
			[]change{{`nstance_certificate_expiry_timestamp_seconds{shard="dev",instance="a",certificate="ca"}`,
				fmt.Sprintf("%dx60", 30*86400+600)}},
			9 * m, 11 * m,
			[]string{"NstanceCAExpires: The CA of shard dev expires in 29d 23h 59m 0s"},
		},
		"a server's certificate expires": {
			[]change{{`nstance_certificate_expiry_timestamp_seconds{shard="dev",instance="a",certificate="server"}`,
				fmt.Sprintf("%dx60", 7*86400+600)}},
			9 * m, 11 * m,
			[]string{"NstanceCertificateExpires: The certificate of server a expires in 6d 23h 59m 0s"},
		},
		"an agent is disconnected": {
			[]change{{"nstance_agent_connected", "1x10 0x50"}}, 9 * m, 11 * m,
			[]string{"NstanceAgentDisconnected: The agent on m is not connected"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			series := with(t, c.changes...)
			if c.quiet > 0 {
				if got := firing(t, series, c.quiet); len(got) > 0 {
					t.Errorf("after %s, already fires %q", c.quiet, got)
				}
			}
			if got := firing(t, series, c.at); !slices.Equal(got, c.want) {
				t.Errorf("after %s, %q fire, want %q", c.at, got, c.want)
			}
		})
	}
}
