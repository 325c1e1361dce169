package settings

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nstance/nstance/pkg/rpc"
)

// NamespaceFile holds the namespace of the pod that reads it.
const NamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Off means, as an address to listen on, that nothing listens.
const Off = "0"

// Settings is how an operator is started.
type Settings struct {
	ConfigFile  string
	HealthAddr  string // Off: none
	MetricsAddr string // Off: none
	LeaderElect bool
	// DisableWebhooks changes nothing, since there are none.
	DisableWebhooks bool
	// Namespace is where all objects are that the operator reads and writes, but for
	// nodes, pods and namespaces.
	Namespace string

	CAConfigMap, CertSecret, KeySecret, NonceSecret string

	// CAPIEndpoint is the API server of a workload cluster whose kubeconfig somebody
	// else provides; empty: the operator makes that of its own cluster.
	CAPIEndpoint       string
	CAPIServiceAccount string
	// JSON: the API server is spoken to in JSON.
	JSON bool

	Log zap.Options
	// ShowVersion: the version is asked for, and nothing else was looked at.
	ShowVersion bool
	// Probe is a URL to ask instead of being an operator, and then nothing else was
	// looked at; empty: none.
	Probe string
	// File is what ConfigFile says at the start.
	File File
}

// World is what settings are read from, beside the arguments.
type World struct {
	LookupEnv func(name string) (string, bool)
	ReadFile  func(path string) ([]byte, error)
	Output    io.Writer // gets help, and what is wrong with a flag
}

// FlagError is an argument that is no flag, or a flag with a value that is not its
// kind; the World's Output has been told. It wraps flag.ErrHelp when help was asked for.
type FlagError struct{ err error }

func (e *FlagError) Error() string { return e.err.Error() }

// Unwrap returns what the flags said.
func (e *FlagError) Unwrap() error { return e.err }

// Parse reads flags, environment and the configuration file. The error tells every
// problem at once, each with the field, its value and what is valid.
func Parse(args []string, w World) (Settings, error) {
	s, e := Settings{}, &env{lookup: w.LookupEnv}
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
	if s.File, err = ReadFile(s.ConfigFile, w.ReadFile); err != nil {
		e.problems = append(e.problems, err)
	}
	return s, errors.Join(e.problems...)
}

func (s *Settings) flags(output io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("nstance-operator", flag.ContinueOnError)
	f.SetOutput(output)
	f.StringVar(&s.ConfigFile, "config", "/etc/nstance/operator/config.yaml", "configuration file; read again while the operator runs")
	f.StringVar(&s.HealthAddr, "health-probe-bind-address", ":8081", "where to answer /healthz and /readyz; 0: nowhere")
	f.StringVar(&s.MetricsAddr, "metrics-bind-address", Off, "where to serve metrics; 0: nowhere")
	f.BoolVar(&s.LeaderElect, "leader-elect", false, "have only one of several operators work")
	f.BoolVar(&s.DisableWebhooks, "disable-webhooks", false, "has no effect: the operator has no webhooks")
	f.StringVar(&s.Namespace, "namespace", "", "namespace of what the operator reads and writes (default: "+
		envNamespace+", or else the pod's own)")
	f.StringVar(&s.Probe, "probe", "", "ask the /readyz of an operator at this URL, say what it answers, and end: the chart's test does")
	f.BoolVar(&s.ShowVersion, "version", false, "print the version")
	s.Log.BindFlags(f)
	f.Usage = func() {
		fmt.Fprintln(output, "usage: nstance-operator [flags]")
		f.PrintDefaults()
	}
	return f
}

// The environment variables that an operator reads.
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

func (s *Settings) readEnv(e *env) {
	s.CAConfigMap = e.name(envCAConfigMap, "nstance-cluster-ca")
	s.CertSecret = e.name(envCertSecret, "nstance-operator-cert")
	s.KeySecret = e.name(envKeySecret, "nstance-operator-key")
	s.NonceSecret = e.name(envNonceSecret, "nstance-operator-nonce")
	s.CAPIEndpoint = e.endpoint(envCAPIEndpoint)
	s.CAPIServiceAccount = e.name(envCAPIServiceAccount, "nstance-capi-workload")
	s.JSON = e.bool(envJSON)
	e.apart(map[string]string{envCertSecret: s.CertSecret, envKeySecret: s.KeySecret, envNonceSecret: s.NonceSecret})
}

// namespace is the flag's, or the variable's, or the pod's own.
func (e *env) namespace(given string, read func(string) ([]byte, error)) string {
	from, value := "--namespace", strings.TrimSpace(given)
	if value == "" {
		from, value = envNamespace, e.get(envNamespace)
	}
	if value == "" {
		text, err := read(NamespaceFile)
		from, value = NamespaceFile, strings.TrimSpace(string(text))
		if err != nil || value == "" {
			e.problems = append(e.problems, fmt.Errorf(
				"namespace: none is given and %s does not tell one: set --namespace or %s", NamespaceFile, envNamespace))
			return ""
		}
	}
	if wrong := validation.IsDNS1123Label(value); len(wrong) > 0 {
		e.reject(from, value, "the name of a namespace, of at most 63 lowercase letters, digits and inner hyphens")
	}
	return value
}

func (e *env) listen(flag, value string) {
	if value == Off {
		return
	}
	if _, err := rpc.ParseListenAddr(value); err != nil {
		e.problems = append(e.problems, fmt.Errorf("%s: %w, or %s for none", flag, err, Off))
	}
}
