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

func TestMergeEnvironment(t *testing.T) {
	got := provider.MergeEnvironment(map[string]string{"B": "1", "A": "1"}, nil, map[string]string{"B": "2"})
	if want := []string{"A=1", "B=2"}; !slices.Equal(got, want) {
		t.Errorf("merged to %v, want %v", got, want)
	}
}
