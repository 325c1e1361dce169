package agent_test

import (
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/agent"
)

func lookupIn(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

// required returns the minimal environment of an agent.
func required(more ...string) map[string]string {
	env := map[string]string{
		"NSTANCE_SERVER_REGISTRATION_ADDR": "10.0.0.1:8992",
		"NSTANCE_SERVER_AGENT_ADDR":        "10.0.0.1:8994,10.0.0.2:8994",
		"NSTANCE_INSTANCE_ID":              instanceID,
	}
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return env
}

func TestFromEnvDefaults(t *testing.T) {
	got, err := agent.FromEnv(lookupIn(required("NSTANCE_DEBUG", "")))
	want := agent.Config{
		RegistrationAddrs: []string{"10.0.0.1:8992"}, AgentAddrs: []string{"10.0.0.1:8994", "10.0.0.2:8994"},
		InstanceID: instanceID, Kind: "knd",
		IdentityDir: "/opt/nstance-agent/identity", KeysDir: "/opt/nstance-agent/keys", RecvDir: "/opt/nstance-agent/recv",
		IdentityMode: 0o600, KeysMode: 0o640, RecvMode: 0o640,
		ReportInterval: time.Minute, SpotPollInterval: 2 * time.Second, Provider: "auto",
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestFromEnvEverything(t *testing.T) {
	got, err := agent.FromEnv(lookupIn(required(
		"NSTANCE_INSTANCE_KIND", "web", "NSTANCE_INSTANCE_HOSTNAME", "web-1", "NSTANCE_INSTANCE_FQDN", "web-1.example.org",
		"NSTANCE_INSTANCE_IPV4", "10.0.1.7", "NSTANCE_INSTANCE_IPV6", "fd00:0::7",
		"NSTANCE_IDENTITY_DIR", "/a/", "NSTANCE_KEYS_DIR", "/b", "NSTANCE_RECV_DIR", "/c",
		"NSTANCE_IDENTITY_MODE", "0640", "NSTANCE_KEYS_MODE", "600", "NSTANCE_RECV_MODE", "0644",
		"NSTANCE_REPORT_INTERVAL", "2s", "NSTANCE_SPOT_POLL_INTERVAL", "500ms", "NSTANCE_PROVIDER", "aws",
		"NSTANCE_HEALTH_ADDR", ":8080", "NSTANCE_METRICS_ADDR", "127.0.0.1:9465", "NSTANCE_DEBUG", "true",
		"AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://[fd00:ec2::254]/", "GCE_METADATA_HOST", "metadata.google.internal:80",
	)))
	want := agent.Config{
		RegistrationAddrs: []string{"10.0.0.1:8992"}, AgentAddrs: []string{"10.0.0.1:8994", "10.0.0.2:8994"},
		InstanceID: instanceID, Kind: "web", Hostname: "web-1", FQDN: "web-1.example.org", IPv4: "10.0.1.7", IPv6: "fd00::7",
		IdentityDir: "/a", KeysDir: "/b", RecvDir: "/c", IdentityMode: 0o640, KeysMode: 0o600, RecvMode: fs.FileMode(0o644),
		ReportInterval: 2 * time.Second, SpotPollInterval: 500 * time.Millisecond, Provider: "aws", HealthAddr: ":8080", Debug: true,
		MetricsAddr: "127.0.0.1:9465",
		AWSMetadata: "http://[fd00:ec2::254]/", GCPMetadata: "metadata.google.internal:80",
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestFromEnvTellsEveryProblemAtOnce(t *testing.T) {
	bad := map[string]string{
		"NSTANCE_SERVER_REGISTRATION_ADDR": "nowhere",
		"NSTANCE_SERVER_AGENT_ADDR":        "10.0.0.1:99999",
		"NSTANCE_INSTANCE_ID":              "i-12345",
		"NSTANCE_INSTANCE_KIND":            "Web",
		"NSTANCE_INSTANCE_HOSTNAME":        "web_1",
		"NSTANCE_INSTANCE_FQDN":            "a..b",
		"NSTANCE_INSTANCE_IPV4":            "fd00::1",
		"NSTANCE_INSTANCE_IPV6":            "10.0.0.300",
		"NSTANCE_IDENTITY_DIR":             "relative",
		"NSTANCE_KEYS_DIR":                 "./keys",
		"NSTANCE_RECV_DIR":                 "~/recv",
		"NSTANCE_IDENTITY_MODE":            "0400",
		"NSTANCE_KEYS_MODE":                "rw-r-----",
		"NSTANCE_RECV_MODE":                "0666",
		"NSTANCE_REPORT_INTERVAL":          "60",
		"NSTANCE_SPOT_POLL_INTERVAL":       "-2s",
		"NSTANCE_PROVIDER":                 "azure",
		"NSTANCE_HEALTH_ADDR":              "8080",
		"NSTANCE_METRICS_ADDR":             "localhost",
		"NSTANCE_DEBUG":                    "perhaps",

		"AWS_EC2_METADATA_SERVICE_ENDPOINT": "169.254.169.254",
		"GCE_METADATA_HOST":                 "http://metadata/",
	}
	_, err := agent.FromEnv(lookupIn(bad))
	if err == nil {
		t.Fatal("all that was accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(bad) {
		t.Errorf("%d problems told, want %d:\n%v", len(lines), len(bad), err)
	}
	for name, value := range bad {
		found := false
		for _, line := range lines {
			found = found || strings.HasPrefix(line, name+": ") && strings.Contains(line, fmt.Sprintf("%q", value)) && strings.Contains(line, "want")
		}
		if !found {
			t.Errorf("no line names %s, %q and what would be valid:\n%v", name, value, err)
		}
	}
}

func TestFromEnvNeedsThreeVariables(t *testing.T) {
	_, err := agent.FromEnv(lookupIn(nil))
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Fatalf("got %v, want three problems", err)
	}
}

func FuzzFromEnv(f *testing.F) {
	f.Add("10.0.0.1:8992", instanceID, "knd", "web-1", "10.0.0.1", "/a", "0600", "60s", "auto", ":8080", "1")
	f.Add("", "", "", "", "", "", "", "", "", "", "")
	f.Add("a,b", "\x00", "KND", "-", "::ffff:1.2.3.4", "a\x00", "99999999999", "1e9h", "\xff", "[::", "TRUE")
	f.Fuzz(func(t *testing.T, addr, id, kind, host, ip, dir, mode, interval, provider, health, debug string) {
		c, err := agent.FromEnv(lookupIn(map[string]string{
			"NSTANCE_SERVER_REGISTRATION_ADDR": addr, "NSTANCE_SERVER_AGENT_ADDR": addr, "NSTANCE_INSTANCE_ID": id,
			"NSTANCE_INSTANCE_KIND": kind, "NSTANCE_INSTANCE_HOSTNAME": host, "NSTANCE_INSTANCE_IPV4": ip, "NSTANCE_INSTANCE_IPV6": ip,
			"NSTANCE_IDENTITY_DIR": dir, "NSTANCE_KEYS_MODE": mode, "NSTANCE_REPORT_INTERVAL": interval,
			"NSTANCE_PROVIDER": provider, "NSTANCE_HEALTH_ADDR": health, "NSTANCE_METRICS_ADDR": health, "NSTANCE_DEBUG": debug,
		}))
		if err != nil {
			return
		}
		if len(c.AgentAddrs) == 0 || len(c.InstanceID) != 29 || len(c.Kind) != 3 || !strings.HasPrefix(c.IdentityDir, "/") ||
			c.ReportInterval < 100*time.Millisecond || c.KeysMode&0o002 != 0 || c.KeysMode > 0o777 {
			t.Fatalf("accepted as %+v", c)
		}
	})
}
