package settings

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nstance/nstance/pkg/env"
	"github.com/nstance/nstance/pkg/rpc"
)

// NamespaceFile has the namespace of the pod that reads it.
const NamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Off as a listen address disables the listener.
const Off = "0"

// Settings is an operator's configuration.
type Settings struct {
	ConfigFile  string
	HealthAddr  string // Off disables it
	MetricsAddr string // Off disables it
	LeaderElect bool
	// DisableWebhooks has no effect, since there are no webhooks.
	DisableWebhooks bool
	// Namespace is that of all objects that the operator uses, except nodes, pods and
	// namespaces.
	Namespace string

	CAConfigMap, CertSecret, KeySecret, NonceSecret string

	// CAPIEndpoint is the API server of a workload cluster whose kubeconfig is provided;
	// empty: the operator creates a kubeconfig for its own cluster.
	CAPIEndpoint       string
	CAPIServiceAccount string
	// JSON: use JSON for the API server.
	JSON bool

	Log zap.Options
	// ShowVersion: print the version; nothing else was read.
	ShowVersion bool
	// Probe is a URL to request instead of running an operator; nothing else was read.
	// Optional.
	Probe string
	// File is the content of ConfigFile at the start.
	File File
}

// World is the source of settings besides the arguments.
type World struct {
	Getenv   func(name string) string
	ReadFile func(path string) ([]byte, error)
	Output   io.Writer // for help and flag errors
}

// FlagError is an invalid flag or argument, already reported to the World's Output. It wraps
// flag.ErrHelp when help was requested.
type FlagError struct{ err error }

func (e *FlagError) Error() string { return e.err.Error() }

// Unwrap returns the error of package flag.
func (e *FlagError) Unwrap() error { return e.err }

// Parse reads flags, environment and the configuration file. The error lists every problem at
// once, each with the field, its value and what is valid.
func Parse(args []string, w World) (Settings, error) {
	s, e := Settings{}, &variables{env.Reader{Getenv: w.Getenv}}
	flags := s.flags(w.Output)
	if err := flags.Parse(args); err != nil {
		return s, &FlagError{err}
	}
	if s.ShowVersion {
		return s, nil
	}
	if flags.NArg() > 0 {
		err := fmt.Errorf("unexpected argument %.80q: want flags only", flags.Arg(0))
		fmt.Fprintln(w.Output, err)
		return s, &FlagError{err}
	}
	if s.Probe != "" {
		return s, nil
	}
	e.listen("--health-probe-bind-address", s.HealthAddr)
	e.listen("--metrics-bind-address", s.MetricsAddr)
	s.Namespace = e.namespace(s.Namespace, w.ReadFile)
	s.readEnv(e)
	var err error
	s.File, err = ReadFile(s.ConfigFile, w.ReadFile)
	e.Fail(err)
	return s, e.Err()
}

func (s *Settings) flags(output io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("nstance-operator", flag.ContinueOnError)
	f.SetOutput(output)
	f.StringVar(&s.ConfigFile, "config", "/etc/nstance/operator/config.yaml", "configuration file; reloaded when it changes")
	f.StringVar(&s.HealthAddr, "health-probe-bind-address", ":8081", "listen address of /healthz and /readyz; 0 disables it")
	f.StringVar(&s.MetricsAddr, "metrics-bind-address", Off, "listen address of the metrics; 0 disables it")
	f.BoolVar(&s.LeaderElect, "leader-elect", false, "elect a leader, so that only one of several operators works")
	f.BoolVar(&s.DisableWebhooks, "disable-webhooks", false, "has no effect: the operator has no webhooks")
	f.StringVar(&s.Namespace, "namespace", "", "namespace of the operator's objects (default: "+
		envNamespace+", or else the pod's own)")
	f.StringVar(&s.Probe, "probe", "", "request an operator's /readyz at this URL, print the response, and exit (used by the chart's test)")
	f.BoolVar(&s.ShowVersion, "version", false, "print the version")
	s.Log.BindFlags(f)
	f.Usage = func() {
		fmt.Fprintln(output, "usage: nstance-operator [flags]")
		f.PrintDefaults()
	}
	return f
}

// Environment variables of the operator.
const (
	envNamespace          = "NSTANCE_NAMESPACE"
	envCAConfigMap        = "NSTANCE_CA_CONFIGMAP"
	envCertSecret         = "NSTANCE_CERT_SECRET"
	envKeySecret          = "NSTANCE_KEY_SECRET"
	envNonceSecret        = "NSTANCE_NONCE_SECRET"
	envCAPIEndpoint       = "NSTANCE_CAPI_ENDPOINT"
	envCAPIServiceAccount = "NSTANCE_CAPI_SERVICEACCOUNT"
	envJSON               = "NSTANCE_K8S_JSON"
)

func (s *Settings) readEnv(e *variables) {
	s.CAConfigMap = e.name(envCAConfigMap, "nstance-cluster-ca")
	s.CertSecret = e.name(envCertSecret, "nstance-operator-cert")
	s.KeySecret = e.name(envKeySecret, "nstance-operator-key")
	s.NonceSecret = e.name(envNonceSecret, "nstance-operator-nonce")
	s.CAPIEndpoint = e.endpoint(envCAPIEndpoint)
	s.CAPIServiceAccount = e.name(envCAPIServiceAccount, "nstance-capi-workload")
	s.JSON = e.Bool(envJSON)
	e.apart(map[string]string{envCertSecret: s.CertSecret, envKeySecret: s.KeySecret, envNonceSecret: s.NonceSecret})
}

// namespace returns the namespace from the flag, the variable, or the pod.
func (e *variables) namespace(given string, read func(string) ([]byte, error)) string {
	from, value := "--namespace", strings.TrimSpace(given)
	if value == "" {
		from, value = envNamespace, e.Get(envNamespace)
	}
	if value == "" {
		text, err := read(NamespaceFile)
		from, value = NamespaceFile, strings.TrimSpace(string(text))
		if err != nil || value == "" {
			e.Fail(fmt.Errorf("namespace: none is set and %s has none: set --namespace or %s", NamespaceFile, envNamespace))
			return ""
		}
	}
	if wrong := validation.IsDNS1123Label(value); len(wrong) > 0 {
		e.Reject(from, value, "the name of a namespace, of at most 63 lowercase letters, digits and inner hyphens")
	}
	return value
}

func (e *variables) listen(flag, value string) {
	if value == Off {
		return
	}
	if _, err := rpc.ParseListenAddr(value); err != nil {
		e.Fail(fmt.Errorf("%s: %w, or %s to disable it", flag, err, Off))
	}
}
