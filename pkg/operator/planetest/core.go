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

	"github.com/nstance/nstance/pkg/freeport"
	"github.com/nstance/nstance/pkg/leaktest"
)

// stopTimeout is how long a process may take to end in order.
const stopTimeout = 30 * time.Second

// controllers are those of kube-controller-manager that run in the tests. The node lifecycle
// controller is left out: it expects heartbeats that are never sent.
const controllers = "garbage-collector-controller,disruption-controller,namespace-controller,serviceaccount-controller"

// SharedCore is, like Shared, one control plane for all tests of a package, but a complete
// one: Cluster API's core with its webhooks and conversions, Kubernetes' own controllers and
// scheduler, and kwok, which simulates the nodes that tests create. Its kinds can't be changed
// either.
type SharedCore struct {
	start sync.Once
	plane *Plane
	parts []*process
	logs  string
	err   error
}

// Main is a package's TestMain, and checks for leaks (leaktest). The logs are kept if a test
// failed. If all tests of the package ran and passed, check inspects the result; its error
// fails the run.
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
		fmt.Fprintln(os.Stderr, "logs of the control plane:", s.logs)
	default:
		_ = os.RemoveAll(s.logs)
	}
	return code
}

// whole reports whether no test of the package was excluded by name.
func whole() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return true
}

// Plane returns the control plane, and starts it on first use.
func (s *SharedCore) Plane(tb testing.TB) *Plane {
	tb.Helper()
	folder := Folder(tb)
	s.start.Do(func() { s.err = s.run(folder, true) })
	if s.err != nil {
		tb.Fatalf("start the control plane: %v", s.err)
	}
	return s.plane
}

// Core returns a separate complete control plane, for tests that move objects from one to
// another. It stops with the test.
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
			tb.Logf("logs of the control plane: %s", s.logs)
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

// Logs returns the folder with the processes' logs, a file for each.
func (s *SharedCore) Logs() string { return s.logs }

// Stop stops all processes. It is for programs without Main.
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

// run starts everything; if shared, kinds are immutable.
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
	// It would taint new nodes until the node lifecycle controller runs.
	env.ControlPlane.GetAPIServer().Configure().Append("disable-admission-plugins", "TaintNodesByCondition")
	ports, err := freeport.Find(1 + partCount)
	if err != nil {
		return err
	}
	env.WebhookInstallOptions = envtest.WebhookInstallOptions{
		Paths:                   []string{filepath.Join(folder, "capi", "webhooks.yaml")},
		LocalServingHost:        freeport.Host,
		LocalServingPort:        ports[partCount],
		IgnoreSchemeConvertible: true, // Cluster API's conversions are in its manager, not in our scheme
		MaxTime:                 startTimeout,
	}
	if s.plane, err = start(env, folder); err != nil {
		return err
	}
	if s.parts, err = parts(env, folder, logs, ports[:partCount]); err != nil {
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
			cancel() // stop waiting for the others
		}
	}
	return err
}

// partCount is the number of processes besides the API server.
const partCount = 4

// parts returns those processes; each listens on one of the ports.
func parts(env *envtest.Environment, folder, logs string, ports []int) ([]*process, error) {
	kubeconfig := filepath.Join(logs, "kubeconfig")
	if err := os.WriteFile(kubeconfig, env.KubeConfig, 0o600); err != nil {
		return nil, err
	}
	var all []*process
	for n, part := range [partCount]func(host, port string) *process{
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
		all = append(all, part(freeport.Host, strconv.Itoa(ports[n])))
	}
	return all, nil
}
