package settings_test

import (
	"errors"
	"flag"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/operator/settings"
)

const (
	defaultFile = "/etc/nstance/operator/config.yaml"
	podFile     = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	smallFile   = "cluster_id: example\nshards: {one: {registration_addr: \"10.0.0.1:8992\", operator_addr: \"10.0.0.1:8993\"}}\n"
)

// fixture is the environment that an operator is started in.
type fixture struct {
	args  []string
	env   map[string]string
	files map[string]string
}

// minimal returns the least that an operator needs in a pod.
func minimal() fixture {
	return fixture{env: map[string]string{}, files: map[string]string{defaultFile: smallFile, podFile: "from-pod\n"}}
}

func (f fixture) parse(output io.Writer) (settings.Settings, error) {
	return settings.Parse(f.args, settings.World{
		Output: output,
		Getenv: func(name string) string { return f.env[name] },
		ReadFile: func(path string) ([]byte, error) {
			text, ok := f.files[path]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
			}
			return []byte(text), nil
		},
	})
}

// TestDefaults: an operator without any settings.
func TestDefaults(t *testing.T) {
	s, err := minimal().parse(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		is, wants any
	}{
		{"--config", s.ConfigFile, "/etc/nstance/operator/config.yaml"},
		{"--health-probe-bind-address", s.HealthAddr, ":8081"},
		{"--metrics-bind-address", s.MetricsAddr, "0"},
		{"--leader-elect", s.LeaderElect, false},
		{"--disable-webhooks", s.DisableWebhooks, false},
		{"--namespace", s.Namespace, "from-pod"},
		{"NSTANCE_CA_CONFIGMAP", s.CAConfigMap, "nstance-cluster-ca"},
		{"NSTANCE_CERT_SECRET", s.CertSecret, "nstance-operator-cert"},
		{"NSTANCE_KEY_SECRET", s.KeySecret, "nstance-operator-key"},
		{"NSTANCE_NONCE_SECRET", s.NonceSecret, "nstance-operator-nonce"},
		{"NSTANCE_CAPI_ENDPOINT", s.CAPIEndpoint, ""},
		{"NSTANCE_CAPI_SERVICEACCOUNT", s.CAPIServiceAccount, "nstance-capi-workload"},
		{"NSTANCE_K8S_JSON", s.JSON, false},
		{"cluster_id", s.File.Cluster, "example"},
		{"tenant", s.File.Tenant, "default"},
	} {
		if c.is != c.wants {
			t.Errorf("%s is %v, want %v", c.name, c.is, c.wants)
		}
	}
}

// TestSet: every flag and every variable sets its setting.
func TestSet(t *testing.T) {
	for _, c := range []struct {
		arg, variable, value string
		of                   func(settings.Settings) any
		wants                any
	}{
		{arg: "--health-probe-bind-address=:9", of: func(s settings.Settings) any { return s.HealthAddr }, wants: ":9"},
		{arg: "--health-probe-bind-address=0", of: func(s settings.Settings) any { return s.HealthAddr }, wants: "0"},
		{arg: "--metrics-bind-address=127.0.0.1:8080", of: func(s settings.Settings) any { return s.MetricsAddr }, wants: "127.0.0.1:8080"},
		{arg: "--leader-elect", of: func(s settings.Settings) any { return s.LeaderElect }, wants: true},
		{arg: "--disable-webhooks", of: func(s settings.Settings) any { return s.DisableWebhooks }, wants: true},
		{arg: "--namespace=of-flag", of: func(s settings.Settings) any { return s.Namespace }, wants: "of-flag"},
		{arg: "--namespace=of-flag", variable: "NSTANCE_NAMESPACE", value: "of-variable",
			of: func(s settings.Settings) any { return s.Namespace }, wants: "of-flag"},
		{variable: "NSTANCE_NAMESPACE", value: "of-variable", of: func(s settings.Settings) any { return s.Namespace }, wants: "of-variable"},
		{variable: "NSTANCE_NAMESPACE", value: "", of: func(s settings.Settings) any { return s.Namespace }, wants: "from-pod"},
		{variable: "NSTANCE_CA_CONFIGMAP", value: "a.b", of: func(s settings.Settings) any { return s.CAConfigMap }, wants: "a.b"},
		{variable: "NSTANCE_CERT_SECRET", value: "a", of: func(s settings.Settings) any { return s.CertSecret }, wants: "a"},
		{variable: "NSTANCE_KEY_SECRET", value: "a", of: func(s settings.Settings) any { return s.KeySecret }, wants: "a"},
		{variable: "NSTANCE_NONCE_SECRET", value: "a", of: func(s settings.Settings) any { return s.NonceSecret }, wants: "a"},
		{variable: "NSTANCE_CAPI_ENDPOINT", value: "https://10.0.0.1:6443",
			of: func(s settings.Settings) any { return s.CAPIEndpoint }, wants: "https://10.0.0.1:6443"},
		{variable: "NSTANCE_CAPI_ENDPOINT", value: "api.internal:6443",
			of: func(s settings.Settings) any { return s.CAPIEndpoint }, wants: "api.internal:6443"},
		{variable: "NSTANCE_CAPI_SERVICEACCOUNT", value: "a", of: func(s settings.Settings) any { return s.CAPIServiceAccount }, wants: "a"},
		{variable: "NSTANCE_K8S_JSON", value: "true", of: func(s settings.Settings) any { return s.JSON }, wants: true},
		{variable: "NSTANCE_K8S_JSON", value: "false", of: func(s settings.Settings) any { return s.JSON }, wants: false},
		{arg: "--zap-encoder=console", of: func(s settings.Settings) any { return s.Log.NewEncoder != nil }, wants: true},
		{arg: "--zap-log-level=debug", of: func(s settings.Settings) any { return s.Log.Level != nil }, wants: true},
	} {
		f := minimal()
		if c.arg != "" {
			f.args = []string{c.arg}
		}
		if c.variable != "" {
			f.env[c.variable] = c.value
		}
		s, err := f.parse(io.Discard)
		if err != nil {
			t.Errorf("%s %s: %v", c.arg, c.variable, err)
		} else if is := c.of(s); is != c.wants {
			t.Errorf("%s %s: %v, want %v", c.arg, c.variable, is, c.wants)
		}
	}
	f := minimal()
	f.args, f.files["/other"] = []string{"--config", "/other"}, strings.Replace(smallFile, "example", "another", 1)
	if s, err := f.parse(io.Discard); err != nil || s.File.Cluster != "another" {
		t.Errorf("--config: %q, %v", s.File.Cluster, err)
	}
}

// TestFatal: the error names each invalid setting, its source and its value.
func TestFatal(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, c := range []struct {
		name   string
		change func(*fixture)
		wants  []string
	}{
		{"no configuration file", func(f *fixture) { delete(f.files, defaultFile) }, []string{defaultFile, "not exist"}},
		{"invalid configuration file", func(f *fixture) { f.files[defaultFile] = "tenant: 5" },
			[]string{defaultFile, "cluster_id: it is missing", "tenant: 5", "shards: it is missing"}},
		{"no namespace", func(f *fixture) { delete(f.files, podFile) }, []string{podFile, "--namespace", "NSTANCE_NAMESPACE"}},
		{"empty namespace file", func(f *fixture) { f.files[podFile] = "\n" }, []string{podFile, "--namespace", "NSTANCE_NAMESPACE"}},
		{"--namespace", func(f *fixture) { f.args = []string{"--namespace", "a.b"} }, []string{"--namespace", `"a.b"`}},
		{"NSTANCE_NAMESPACE", func(f *fixture) { f.env["NSTANCE_NAMESPACE"] = long }, []string{"NSTANCE_NAMESPACE", "63"}},
		{"the pod's namespace", func(f *fixture) { f.files[podFile] = "A" }, []string{podFile, `"A"`}},
		{"--health-probe-bind-address", func(f *fixture) { f.args = []string{"--health-probe-bind-address", "8081"} },
			[]string{"--health-probe-bind-address", `"8081"`, "0 to disable it"}},
		{"--metrics-bind-address", func(f *fixture) { f.args = []string{"--metrics-bind-address", "x"} },
			[]string{"--metrics-bind-address", `"x"`}},
		{"NSTANCE_CA_CONFIGMAP", func(f *fixture) { f.env["NSTANCE_CA_CONFIGMAP"] = "a_b" }, []string{"NSTANCE_CA_CONFIGMAP", `"a_b"`}},
		{"NSTANCE_CERT_SECRET", func(f *fixture) { f.env["NSTANCE_CERT_SECRET"] = "A" }, []string{"NSTANCE_CERT_SECRET", `"A"`}},
		{"NSTANCE_KEY_SECRET", func(f *fixture) { f.env["NSTANCE_KEY_SECRET"] = "A" }, []string{"NSTANCE_KEY_SECRET", `"A"`}},
		{"NSTANCE_NONCE_SECRET", func(f *fixture) { f.env["NSTANCE_NONCE_SECRET"] = "A" }, []string{"NSTANCE_NONCE_SECRET", `"A"`}},
		{"one Secret for two purposes", func(f *fixture) { f.env["NSTANCE_KEY_SECRET"] = "nstance-operator-cert" },
			[]string{"NSTANCE_KEY_SECRET", "NSTANCE_CERT_SECRET", "nstance-operator-cert"}},
		{"NSTANCE_CAPI_SERVICEACCOUNT", func(f *fixture) { f.env["NSTANCE_CAPI_SERVICEACCOUNT"] = "A" },
			[]string{"NSTANCE_CAPI_SERVICEACCOUNT", `"A"`}},
		{"NSTANCE_CAPI_ENDPOINT", func(f *fixture) { f.env["NSTANCE_CAPI_ENDPOINT"] = "http://x" },
			[]string{"NSTANCE_CAPI_ENDPOINT", `"http://x"`, "https"}},
		{"NSTANCE_K8S_JSON", func(f *fixture) { f.env["NSTANCE_K8S_JSON"] = "maybe" }, []string{"NSTANCE_K8S_JSON", `"maybe"`, "true or false"}},
		{"two errors", func(f *fixture) { f.env["NSTANCE_K8S_JSON"], f.env["NSTANCE_KEY_SECRET"] = "maybe", "A" },
			[]string{"NSTANCE_K8S_JSON", "NSTANCE_KEY_SECRET"}},
	} {
		f := minimal()
		c.change(&f)
		_, err := f.parse(io.Discard)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, word := range c.wants {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v\nlacks %q", c.name, err, word)
			}
		}
	}
}

// TestArguments: errors in the arguments, and the help, are printed.
func TestArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		word string
		help bool
	}{
		{[]string{"--nothing"}, "-nothing", false},
		{[]string{"start"}, `"start"`, false},
		{[]string{"--leader-elect=perhaps"}, "leader-elect", false},
		{[]string{"--help"}, "has no effect", true}, // of --disable-webhooks
		{[]string{"--help"}, "NSTANCE_NAMESPACE", true},
	} {
		var output strings.Builder
		f := minimal()
		f.args = c.args
		_, err := f.parse(&output)
		var flags *settings.FlagError
		if !errors.As(err, &flags) || errors.Is(err, flag.ErrHelp) != c.help {
			t.Errorf("%v: %v", c.args, err)
		}
		if !strings.Contains(output.String(), c.word) {
			t.Errorf("%v: %s\nlacks %q", c.args, output.String(), c.word)
		}
	}
	f := fixture{args: []string{"--version"}}
	if s, err := f.parse(io.Discard); err != nil || !s.ShowVersion {
		t.Errorf("--version: %v, %v", s.ShowVersion, err)
	}
}
