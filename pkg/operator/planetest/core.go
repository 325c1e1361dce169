package planetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/nstance/nstance/pkg/leaktest"
)

// stopTimeout is how long a process may take to end in order.
const stopTimeout = 10 * time.Second

// controllers are those of Kubernetes that a cluster has in the tests. The node
// lifecycle one is left out: it would judge nodes by heartbeats that nobody sends.
const controllers = "garbage-collector-controller,disruption-controller,namespace-controller,serviceaccount-controller"

// SharedCore is, like Shared, a control plane for all tests of a package, and a whole
// one: the core of Cluster API with its webhooks and conversions, Kubernetes' own
// controllers and scheduler, and kwok, which plays the nodes that tests create. Its kinds
// can't be changed either.
type SharedCore struct {
	start sync.Once
	plane *Plane
	parts []*process
	logs  string
	err   error
}

// Main is a package's TestMain, and checks what the tests leave behind (leaktest). What the
// processes said is kept if a test failed. When none of all the package's tests did, check
// looks back at them; its error fails the run.
func (s *SharedCore) Main(m *testing.M, check func() error) {
	leaktest.Main(func() int { return s.tests(m, check) })
}

func (s *SharedCore) tests(m *testing.M, check func() error) int {
	code := max(m.Run(), exitCode(s.Stop()))
	if code == 0 && s.plane != nil && whole() {
		if err := check(); err != nil {
			fmt.Fprintln(os.Stderr, "FAIL: all tests together:", err)
			code = 1
		}
	}
	switch {
	case s.logs == "":
	case code != 0:
		fmt.Fprintln(os.Stderr, "what the control plane said:", s.logs)
	default:
		_ = os.RemoveAll(s.logs)
	}
	return code
}

// whole reports that no test of the package was left out by name.
func whole() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return true
}

// Plane returns the control plane, started if it is not yet.
func (s *SharedCore) Plane(tb testing.TB) *Plane {
	tb.Helper()
	folder := Folder(tb)
	s.start.Do(func() { s.err = s.run(folder, true) })
	if s.err != nil {
		tb.Fatalf("start the control plane: %v", s.err)
	}
	return s.plane
}

// Core is one more whole control plane, of a test's own: for what goes from one to
// another. It ends with the test.
func Core(tb testing.TB) *Plane {
	tb.Helper()
	s := &SharedCore{}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Errorf("stop the control plane: %v", err)
		}
		switch {
		case s.logs == "":
		case tb.Failed():
			tb.Logf("what the control plane said: %s", s.logs)
		default:
			_ = os.RemoveAll(s.logs)
		}
	})
	folder := Folder(tb)
	if err := s.run(folder, false); err != nil {
		tb.Fatalf("start the control plane: %v", err)
	}
	return s.plane
}

// Logs is the folder with what the processes said, a file for each.
func (s *SharedCore) Logs() string { return s.logs }

// Stop ends all processes. It is for a program that has no Main.
func (s *SharedCore) Stop() error {
	var err error
	for _, part := range s.parts {
		err = errors.Join(err, part.stop())
	}
	if s.plane != nil {
		err = errors.Join(err, s.plane.env.Stop())
	}
	return err
}

// run starts all of it; shared: its kinds stay as they are.
func (s *SharedCore) run(folder string, shared bool) error {
	logs, err := os.MkdirTemp("", "nstance-plane-")
	if err != nil {
		return err
	}
	s.logs = logs
	env := environment(folder)
	if err := audited(env, logs); err != nil {
		return err
	}
	// It would keep pods off new nodes until the node lifecycle controller comes.
	env.ControlPlane.GetAPIServer().Configure().Append("disable-admission-plugins", "TaintNodesByCondition")
	env.WebhookInstallOptions = envtest.WebhookInstallOptions{
		Paths:                   []string{filepath.Join(folder, "capi", "webhooks.yaml")},
		LocalServingHost:        "127.0.0.1",
		IgnoreSchemeConvertible: true, // Cluster API's conversions are in its manager, not in our scheme
		MaxTime:                 startTimeout,
	}
	if s.plane, err = start(env, folder); err != nil {
		return err
	}
	if s.parts, err = parts(env, folder, logs); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	starts := make([]func(context.Context) error, 0, len(s.parts)+1)
	for _, part := range s.parts {
		starts = append(starts, part.start)
	}
	if shared {
		starts = append(starts, func(ctx context.Context) error { return keepKinds(ctx, s.plane.Client) })
	}
	started := make(chan error, len(starts))
	for _, start := range starts {
		go func() { started <- start(ctx) }()
	}
	for range starts {
		err = errors.Join(err, <-started)
		if err != nil {
			cancel() // the others wait for nothing
		}
	}
	return err
}

func parts(env *envtest.Environment, folder, logs string) ([]*process, error) {
	kubeconfig := filepath.Join(logs, "kubeconfig")
	if err := os.WriteFile(kubeconfig, env.KubeConfig, 0o600); err != nil {
		return nil, err
	}
	var all []*process
	for _, part := range []func(host, port string) *process{
		func(host, port string) *process {
			return command(folder, logs, "kube-controller-manager", "https://"+net.JoinHostPort(host, port)+"/healthz",
				"--kubeconfig="+kubeconfig, "--leader-elect=false", "--bind-address="+host, "--secure-port="+port, "--cert-dir="+logs,
				"--controllers="+controllers, "--kube-api-qps=500", "--kube-api-burst=1000")
		},
		func(host, port string) *process {
			return command(folder, logs, "kube-scheduler", "https://"+net.JoinHostPort(host, port)+"/healthz",
				"--kubeconfig="+kubeconfig, "--leader-elect=false", "--bind-address="+host, "--secure-port="+port)
		},
		func(host, port string) *process {
			return command(folder, logs, "kwok", "http://"+net.JoinHostPort(host, port)+"/healthz",
				"--kubeconfig="+kubeconfig, "--config="+filepath.Join(folder, "kwok.yaml"), "--manage-all-nodes=true",
				"--server-address="+net.JoinHostPort(host, port))
		},
		func(host, port string) *process {
			hooks := env.WebhookInstallOptions
			return command(folder, logs, "capi-core", "http://"+net.JoinHostPort(host, port)+"/readyz",
				"--kubeconfig="+kubeconfig, "--health-addr="+net.JoinHostPort(host, port),
				"--diagnostics-address=0", "--insecure-diagnostics=true",
				"--webhook-port="+strconv.Itoa(hooks.LocalServingPort), "--webhook-cert-dir="+hooks.LocalServingCertDir)
		},
	} {
		host, port, err := address()
		if err != nil {
			return nil, err
		}
		all = append(all, part(host, port))
	}
	return all, nil
}
