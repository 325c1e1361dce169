package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/config"
)

// minimal is the smallest valid config; tests insert their own parts.
const minimal = `{
  "cluster": { "id": "c", "secrets": { "encryption_key": { "provider": "env", "source": "KEY" } } },
  "server": { "provider": { "kind": "fake" }, "subnet_pools": { "workers": ["a", "b"], "control": ["c"] } },
  "templates": { "knd": { "kind": "knd", "arch": "amd64", "subnet_pool": "workers" } },
}`

// with returns minimal with more sections.
func with(sections string) string {
	return strings.TrimSuffix(minimal, "}") + sections + "}"
}

func TestDefaults(t *testing.T) {
	shard := parse(t, minimal)
	s := shard.Server
	for _, c := range []struct {
		field     string
		got, want any
	}{
		{"secrets.provider", shard.Cluster.Secrets.Provider, "object-storage"},
		{"secrets.prefix", shard.Cluster.Secrets.Prefix, "cluster/secret/"},
		{"bind.agent_addr", s.Bind.Agent, "0.0.0.0:8994"},
		{"bind.metrics_addr", s.Bind.Metrics, ""},
		{"advertise.agent_addr", s.Advertise.Agent, "0.0.0.0:8994"},
		{"renew_interval", s.LeaderElection.RenewInterval.Std(), 10 * time.Second},
		{"lease_duration", s.LeaderElection.LeaseDuration.Std(), 30 * time.Second},
		{"fence_window", s.LeaderElection.FenceWindow.Std(), time.Second},
		{"request_timeout", s.RequestTimeout.Std(), 30 * time.Second},
		{"shutdown_timeout", s.ShutdownTimeout.Std(), 10 * time.Second},
		{"create_rate", s.CreateRate, config.CreateRate{PerSecond: 10, Burst: 20, Concurrency: 16}},
		{"report_interval", s.Health.ReportInterval.Std(), time.Minute},
		{"missed_reports", s.Health.MissedReports, 3},
		{"shutdown_grace", s.Health.ShutdownGrace.Std(), 30 * time.Second},
		{"default_drain_timeout", s.DefaultDrainTimeout.Std(), 5 * time.Minute},
		{"image_refresh_interval", s.ImageRefreshInterval.Std(), 6 * time.Hour},
		{"gc.interval", s.GarbageCollection.Interval.Std(), 2 * time.Minute},
		{"gc.registration_timeout", s.GarbageCollection.RegistrationTimeout.Std(), 5 * time.Minute},
		{"gc.retention", s.GarbageCollection.DeletedRecordRetention.Std(), 30 * time.Minute},
		{"gc.request_retention", s.GarbageCollection.RequestRetention.Std(), 7 * 24 * time.Hour},
		{"on_demand.create_timeout", s.OnDemand.CreateTimeout.Std(), 10 * time.Minute},
		{"expiry", s.Expiry, config.Expiry{}},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, want %v", c.field, c.got, c.want)
		}
	}
}

// Launches at AWS are slower: two a second for all shards of an account.
func TestDefaultsOfAWS(t *testing.T) {
	shard := parse(t, strings.Replace(minimal, `"kind": "fake"`, `"kind": "aws", "region": "eu-central-1", "zone": "eu-central-1a"`, 1))
	if got, want := shard.Server.CreateRate, (config.CreateRate{PerSecond: 2, Burst: 5, Concurrency: 16}); got != want {
		t.Errorf("create_rate is %+v, want %+v", got, want)
	}
}

// A zero in the text is a value, not a default.
func TestZeroIsNotUnset(t *testing.T) {
	shard := parse(t, strings.Replace(minimal, `"provider": { "kind": "fake" },`, `"provider": { "kind": "fake" },
		"create_rate": { "per_second": 0 }, "default_drain_timeout": "0s", "health": { "shutdown_grace": "0s" },`, 1))
	s := shard.Server
	if s.CreateRate.PerSecond != 0 || s.DefaultDrainTimeout != 0 || s.Health.ShutdownGrace != 0 {
		t.Errorf("written zeros became defaults: %+v", s)
	}
	if s.CreateRate.Burst != 20 {
		t.Errorf("burst is %d, want the default beside a written per_second", s.CreateRate.Burst)
	}
	problems := problemsOf(t, strings.Replace(minimal, `"subnet_pools"`, `"leader_election": { "renew_interval": "0s" }, "subnet_pools"`, 1))
	if !strings.HasPrefix(problems, "server.leader_election.renew_interval: 0s is outside the limits") {
		t.Errorf("a written zero interval gives %q", problems)
	}
}

func TestAdvertiseFollowsBind(t *testing.T) {
	shard := parse(t, strings.Replace(minimal, `"subnet_pools"`,
		`"bind": { "agent_addr": "10.0.0.1:7" }, "advertise": { "health_addr": ":80" }, "subnet_pools"`, 1))
	if a := shard.Server.Advertise; a.Agent != "10.0.0.1:7" || a.Health != ":80" || a.Operator != "0.0.0.0:8993" {
		t.Errorf("advertise is %+v", a)
	}
}

func TestSyntaxErrorsNameTheirPlace(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "line 2, column 1: parsing value: unexpected EOF"},
		{"not closed", "{\n  \"cluster\": {", "line 3, column 1: parsing value: unexpected EOF"},
		{"no comma", "{\n  \"a\": 1\n  \"b\": 2\n}", "line 3, column 3: invalid character '\"' after object value"},
		{"two values", "{} {}", "line 1, column 4: invalid character '{' after top-level value"},
		{"bare word", "{\"a\":\n nope}", "line 2, column 2: invalid literal: nope"},
		{"not UTF-8", "{\n\"a\": \"\xff\"}", "line 2, column 7: not valid UTF-8"},
		{"not an object", "[]", "got an array: want an object"},
		{"too deep", strings.Repeat("[", 100_000), "line 1, column 65: objects and arrays are nested more than 64 deep"},
		{"too large", strings.Repeat(" ", config.MaxSize+1),
			fmt.Sprintf("the text has %d bytes: at most %d are read", config.MaxSize+1, config.MaxSize)},
		{"endless literal", strings.Repeat("a", 1<<20), "line 1, column 1: invalid literal: aaaa"},
	} {
		got := problemsOf(t, c.text)
		if !strings.HasPrefix(got, c.want) || strings.Count(got, "\n") != 1 || len(got) > 400 {
			t.Errorf("%s: got %.500q, want %q", c.name, got, c.want)
		}
	}
}

func TestCommentsAndCommas(t *testing.T) {
	parse(t, "// first\n"+strings.Replace(minimal, `"kind": "knd"`, "/* \"[[{\" */ \"kind\": \"knd\" // }]\n", 1)+
		" // last, without a newline")
	deep := strings.Repeat("[", 60) + strings.Repeat("]", 60)
	parse(t, with(`"defaults": { "args": { /*`+strings.Repeat("[", 100)+`*/ "text": "\"`+strings.Repeat("[", 100)+`" } }, // `+deep+"\n"))
}

func TestNumbersKeepTheirValue(t *testing.T) {
	shard := parse(t, with(`"defaults": { "vars": { "a": 1000000, "b": 1.0, "c": 2.5, "d": -3, "e": 1e3 } }`))
	vars := shard.Defaults.Vars
	for key, want := range map[string]any{"a": int64(1000000), "b": int64(1), "c": 2.5, "d": int64(-3), "e": int64(1000)} {
		if vars[key] != want {
			t.Errorf("vars.%s is %T %v, want %T %v", key, vars[key], vars[key], want, want)
		}
	}
	for number, want := range map[string]string{
		"9007199254740993": "too large to be kept exactly", "9223372036854775808": "too large to be kept exactly",
		"-9223372036854775809": "too large to be kept exactly", "123456789012345678901234567890": "too large to be kept exactly",
		"1e999": "outside the range of numbers",
	} {
		if got := problemsOf(t, with(`"defaults": { "vars": { "n": `+number+` } }`)); !strings.Contains(got, want) {
			t.Errorf("%s gives %q, want %q", number, got, want)
		}
	}
}

// A section that can't be decoded is reported once, and not again by everything that refers to
// it.
func TestNoProblemFollowsFromAnother(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{strings.Replace(with(`"groups": { "default": { "web": { "template": "knd" } } }`), `"knd": {`, `"knd": 1, "other": {`, 1),
			"templates.knd: got the number 1: want an object\n"},
		{strings.Replace(minimal, `{ "workers": ["a", "b"], "control": ["c"] }`, `"none"`, 1),
			"server.subnet_pools: got the string \"none\": want an object\n"},
		{with(`"tenants": [], "groups": { "prod": { "web": { "template": "knd" } } }`),
			"tenants: got an array: want an object\n"},
	} {
		if got := problemsOf(t, c.text); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// Parsing is linear in the length of a text; with quadratic cost these texts would take minutes.
func TestHostileTextsEndSoon(t *testing.T) {
	const n = 60_000
	for name, text := range map[string]string{
		"duplicates":     `{` + strings.Repeat(`"a":1,`, n) + `}`,
		"unknown fields": `{` + numbered(n, `"f%d":1,`) + `}`,
		"long list":      with(`"load_balancers": { "x": { "provider": "aws", "target_group_arns": [` + numbered(n, `"a%d",`) + `] } }`),
		"bad values":     with(`"tenants": {` + numbered(n, `"t%d":1,`) + `}`),
		"dangling": with(`"certificates": {` + numbered(n, `"c%d":{},`) + `}, ` +
			`"groups": { "default": {` + numbered(n, `"g%d":{"template":"t"},`) + `} }`),
	} {
		start := time.Now()
		problems := problemsOf(t, text)
		took := time.Since(start)
		if took > time.Minute {
			t.Errorf("%s: took %v", name, took)
		}
		if lines := strings.Count(problems, "\n"); lines > 2100 {
			t.Errorf("%s: %d problems listed", name, lines)
		}
	}
}

func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func TestInstanceTypeFitsArch(t *testing.T) {
	checks := config.Checks{InstanceTypeArch: func(s string) (string, bool) {
		arch, known := map[string]string{"t4g.small": "arm64", "t3.small": "amd64"}[s]
		return arch, known
	}}
	text := with(`"groups": { "default": {
		"a": { "template": "knd", "instance_type": "t4g.small" },
		"b": { "template": "knd", "instance_type": "t3.small" },
		"c": { "template": "knd", "instance_type": "unheard.of" } } }`)
	text = strings.Replace(text, `"kind": "knd",`, `"kind": "knd", "instance_type": "t4g.small",`, 1)
	want := `[groups.default.a.instance_type: instance type "t4g.small" is arm64, but the template's arch is amd64 ` +
		`templates.knd.instance_type: instance type "t4g.small" is arm64, but the template's arch is amd64]`
	shard := parse(t, text)
	if got := fmt.Sprint([]config.Problem(shard.Validate(checks))); got != want {
		t.Errorf("Validate gives %s", got)
	}
	var problems config.Problems
	if _, err := config.ParseWith([]byte(text), checks); !errors.As(err, &problems) || fmt.Sprint([]config.Problem(problems)) != want {
		t.Errorf("ParseWith gives %v", err)
	}
}
