package provider_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// TestManagedVariables: whatever an agent is told by the provider can't be set
// by a config as well.
func TestManagedVariables(t *testing.T) {
	spec := provider.Spec{ID: id, Hostname: "h", Bootstrap: provider.Bootstrap{
		RegistrationAddrs: []string{"a:1", "b:1"}, AgentAddrs: []string{"a:2"}, ReportInterval: 2 * time.Second,
	}}
	env := spec.Environment()
	if env["NSTANCE_SERVER_REGISTRATION_ADDR"] != "a:1,b:1" || env["NSTANCE_REPORT_INTERVAL"] != "2s" ||
		env["NSTANCE_INSTANCE_KIND"] != "knc" {
		t.Errorf("environment is %v", env)
	}
	for name := range env {
		if err := provider.CheckEnvironment("env", map[string]string{name: "x"}).Err(); !errors.Is(err, provider.ErrInvalid) {
			t.Errorf("%s may be set by a config: %v", name, err)
		}
	}
	if err := provider.CheckEnvironment("env", map[string]string{"NSTANCE_DEBUG": "1", "HOME": ""}).Err(); err != nil {
		t.Errorf("good variables: %v", err)
	}
	err := provider.CheckEnvironment("env", map[string]string{"": "x", "A=B": "x", "C": "a\x00b"})
	if len(err) != 3 || len(strings.Split(err.Error(), "; ")) != 3 {
		t.Errorf("three bad variables: %v", err)
	}
}

// TestOpen: args set what is known to be harmless, and what the options list.
func TestOpen(t *testing.T) {
	allowed := []string{"COLOUR", "APP_*"}
	for name, want := range map[string]string{
		"NSTANCE_DEBUG": "", "NSTANCE_SPOT_POLL_INTERVAL": "", "COLOUR": "", "APP_": "", "APP_LEVEL": "",
		"COLOURS": "not a variable that args may set", "colour": "not a variable", "APP": "not a variable", "APP_-x": "not a variable",
		"LD_PRELOAD": "not a variable", "LD_LIBRARY_PATH": "not a variable", "PATH": "not a variable", "ENV": "not a variable",
		"BASH_ENV": "not a variable", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "not a variable", "NSTANCE_PROVIDER": "not a variable",
		"HOME": "not a variable", "GODEBUG": "not a variable", "SSL_CERT_FILE": "not a variable", "HTTPS_PROXY": "not a variable",
		"NSTANCE_KEYS_DIR": "sets this variable itself", "A=B": "not a valid variable name", "": "not a valid variable name",
	} {
		err := provider.CheckOpen("args.env", map[string]string{name: "x"}, allowed)
		if (len(err) == 0) != (want == "") || len(err) > 1 || len(err) == 1 && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
	wrong := provider.CheckArgsEnv("options.args_env", []string{"COLOUR", "APP_*", "*", "", "A*B", "A=B", "1A", "NSTANCE_INSTANCE_ID"})
	if len(wrong) != 6 || !strings.Contains(wrong.Error(), "options.args_env[2]: \"*\" is not valid") {
		t.Errorf("of two good and six bad patterns: %v", wrong)
	}
	for name := range (provider.Spec{ID: id}).Environment() {
		if wrong := provider.CheckOpen("args.env", map[string]string{name: "x"}, []string{"NSTANCE_*"}); len(wrong) != 1 {
			t.Errorf("a pattern gives away %s: %v", name, wrong)
		}
	}
}

// FuzzOpen: nothing but a plain name on the list, or one of those that are open, is taken.
func FuzzOpen(f *testing.F) {
	f.Add("APP_X", "APP_*")
	f.Add("LD_PRELOAD", "*")
	f.Fuzz(func(t *testing.T, name, pattern string) {
		if len(provider.CheckArgsEnv("l", []string{pattern})) > 0 {
			return
		}
		taken := len(provider.CheckOpen("e", map[string]string{name: "x"}, []string{pattern})) == 0
		beginning, some := strings.CutSuffix(pattern, "*")
		if taken && name != pattern && (!some || !strings.HasPrefix(name, beginning)) && !slices.Contains(provider.OpenVariables(), name) {
			t.Errorf("%q is taken by %q", name, pattern)
		}
	})
}

func TestMergeEnvironment(t *testing.T) {
	got := provider.MergeEnvironment(map[string]string{"B": "1", "A": "1"}, nil, map[string]string{"B": "2"})
	if want := []string{"A=1", "B=2"}; !slices.Equal(got, want) {
		t.Errorf("merged to %v, want %v", got, want)
	}
}
