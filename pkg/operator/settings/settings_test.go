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

// world holds what an operator is started in.
type world struct {
	args  []string
	env   map[string]string
	files map[string]string
}

// usual is as little as an operator needs, in a pod.
func usual() world {
	return world{env: map[string]string{}, files: map[string]string{defaultFile: smallFile, podFile: "from-pod\n"}}
}

func (w world) parse(output io.Writer) (settings.Settings, error) {
	return settings.Parse(w.args, settings.World{
		Output: output,
		LookupEnv: func(name string) (string, bool) {
			value, ok := w.env[name]
			return value, ok
		},
		ReadFile: func(path string) ([]byte, error) {
			text, ok := w.files[path]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
			}
			return []byte(text), nil
		},
	})
}

// TestDefaults: what an operator is that nobody told anything.
func TestDefaults(t *testing.T) {
	s, err := usual().parse(io.Discard)
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

// TestSet: every flag and every variable reaches its setting.
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
		w := usual()
		if c.arg != "" {
			w.args = []string{c.arg}
		}
		if c.variable != "" {
			w.env[c.variable] = c.value
		}
		s, err := w.parse(io.Discard)
		if err != nil {
			t.Errorf("%s %s: %v", c.arg, c.variable, err)
		} else if is := c.of(s); is != c.wants {
			t.Errorf("%s %s: it is %v, want %v", c.arg, c.variable, is, c.wants)
		}
	}
	w := usual()
	w.args, w.files["/other"] = []string{"--config", "/other"}, strings.Replace(smallFile, "example", "another", 1)
	if s, err := w.parse(io.Discard); err != nil || s.File.Cluster != "another" {
		t.Errorf("--config: %q, %v", s.File.Cluster, err)
	}
}

// TestFatal: every setting with which an operator does not start, and what it says.
func TestFatal(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, c := range []struct {
		name  string
		world func(*world)
		wants []string
	}{
		{"no configuration file", func(w *world) { delete(w.files, defaultFile) }, []string{defaultFile, "not exist"}},
		{"a file that is not valid", func(w *world) { w.files[defaultFile] = "tenant: 5" },
			[]string{defaultFile, "cluster_id: it is missing", "tenant: 5", "shards: it is missing"}},
		{"no namespace", func(w *world) { delete(w.files, podFile) }, []string{podFile, "--namespace", "NSTANCE_NAMESPACE"}},
		{"an empty namespace file", func(w *world) { w.files[podFile] = "\n" }, []string{podFile, "--namespace", "NSTANCE_NAMESPACE"}},
		{"the flag's namespace", func(w *world) { w.args = []string{"--namespace", "a.b"} }, []string{"--namespace", `"a.b"`}},
		{"the variable's namespace", func(w *world) { w.env["NSTANCE_NAMESPACE"] = long }, []string{"NSTANCE_NAMESPACE", "63"}},
		{"the pod's namespace", func(w *world) { w.files[podFile] = "A" }, []string{podFile, `"A"`}},
		{"a health address", func(w *world) { w.args = []string{"--health-probe-bind-address", "8081"} },
			[]string{"--health-probe-bind-address", `"8081"`, "0 for none"}},
		{"a metrics address", func(w *world) { w.args = []string{"--metrics-bind-address", "x"} }, []string{"--metrics-bind-address", `"x"`}},
		{"a ConfigMap's name", func(w *world) { w.env["NSTANCE_CA_CONFIGMAP"] = "a_b" }, []string{"NSTANCE_CA_CONFIGMAP", `"a_b"`}},
		{"the certificate's Secret", func(w *world) { w.env["NSTANCE_CERT_SECRET"] = "A" }, []string{"NSTANCE_CERT_SECRET", `"A"`}},
		{"the key's Secret", func(w *world) { w.env["NSTANCE_KEY_SECRET"] = "A" }, []string{"NSTANCE_KEY_SECRET", `"A"`}},
		{"the nonce's Secret", func(w *world) { w.env["NSTANCE_NONCE_SECRET"] = "A" }, []string{"NSTANCE_NONCE_SECRET", `"A"`}},
		{"one Secret for two purposes", func(w *world) { w.env["NSTANCE_KEY_SECRET"] = "nstance-operator-cert" },
			[]string{"NSTANCE_KEY_SECRET", "NSTANCE_CERT_SECRET", "nstance-operator-cert"}},
		{"a ServiceAccount", func(w *world) { w.env["NSTANCE_CAPI_SERVICEACCOUNT"] = "A" }, []string{"NSTANCE_CAPI_SERVICEACCOUNT", `"A"`}},
		{"an endpoint", func(w *world) { w.env["NSTANCE_CAPI_ENDPOINT"] = "http://x" }, []string{"NSTANCE_CAPI_ENDPOINT", `"http://x"`, "https"}},
		{"a switch", func(w *world) { w.env["NSTANCE_K8S_JSON"] = "maybe" }, []string{"NSTANCE_K8S_JSON", `"maybe"`, "true or false"}},
		{"two at once", func(w *world) { w.env["NSTANCE_K8S_JSON"], w.env["NSTANCE_KEY_SECRET"] = "maybe", "A" },
			[]string{"NSTANCE_K8S_JSON", "NSTANCE_KEY_SECRET"}},
	} {
		w := usual()
		c.world(&w)
		_, err := w.parse(io.Discard)
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

// TestArguments: what is wrong with the arguments themselves is told to the person.
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
		var said strings.Builder
		w := usual()
		w.args = c.args
		_, err := w.parse(&said)
		var flags *settings.FlagError
		if !errors.As(err, &flags) || errors.Is(err, flag.ErrHelp) != c.help {
			t.Errorf("%v: %v", c.args, err)
		}
		if !strings.Contains(said.String(), c.word) {
			t.Errorf("%v: %s\nlacks %q", c.args, said.String(), c.word)
		}
	}
	w := world{args: []string{"--version"}}
	if s, err := w.parse(io.Discard); err != nil || !s.ShowVersion {
		t.Errorf("--version: %v, %v", s.ShowVersion, err)
	}
}
