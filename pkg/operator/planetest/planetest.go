// Package planetest gives tests a real Kubernetes API server: etcd and
// kube-apiserver, built by make testplane, with the project's kinds installed.
package planetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/leaktest"
)

// Want is an environment variable: 0 skips tests that need a control plane, 1 fails them where
// they would be skipped.
const Want = "PLANE"

// startTimeout bounds the start and the stop of each process.
const startTimeout = 2 * time.Minute

// Plane is a running control plane.
type Plane struct {
	// Config is an administrator's access.
	Config *rest.Config
	// Client reads and writes all kinds that the project knows, uncached.
	Client client.Client

	env *envtest.Environment
}

// Root is the repository's top folder.
func Root() string {
	out, err := exec.CommandContext(context.Background(), "go", "env", "GOMOD").Output()
	if err != nil {
		return "."
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

// Folder returns the folder of the control plane's binaries. It skips the test, with a reason,
// if they are not built or not wanted.
func Folder(tb testing.TB) string {
	tb.Helper()
	if os.Getenv(Want) == "0" {
		tb.Skip("SKIPPED: " + Want + "=0: tests on a control plane are off")
	}
	root := Root()
	find := exec.CommandContext(tb.Context(), filepath.Join(root, ".ci", "plane"), "-n")
	find.Dir = root
	out, err := find.Output()
	switch {
	case err == nil:
		return strings.TrimSpace(string(out))
	case os.Getenv(Want) == "1":
		tb.Fatal("the control plane is not built, and " + Want + "=1 requires it: run make testplane")
	default:
		tb.Skip("SKIPPED: the control plane is not built: run make testplane")
	}
	return ""
}

// Scheme returns a scheme with Kubernetes' own kinds, Cluster API's and the project's.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, v1beta1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Shared is one control plane for all tests of a package: Plane starts it on first use, and
// Main stops it. It has the API server and its storage, and no controllers but the test's. Its
// kinds can't be installed, changed or removed: a test that does so uses Own or Bare.
type Shared struct {
	start sync.Once
	plane *Plane
	err   error
}

// Main is a package's TestMain, and checks for leaks (leaktest).
func (s *Shared) Main(m *testing.M) {
	leaktest.Main(func() int {
		code := m.Run()
		if s.plane != nil {
			code = max(code, exitCode(s.plane.env.Stop()))
		}
		return code
	})
}

// Plane returns the control plane, and starts it on first use.
func (s *Shared) Plane(tb testing.TB) *Plane {
	tb.Helper()
	folder := Folder(tb)
	s.start.Do(func() { s.plane, s.err = startShared(folder) })
	if s.err != nil {
		tb.Fatalf("start the control plane: %v", s.err)
	}
	return s.plane
}

func startShared(folder string) (*Plane, error) {
	plane, err := start(environment(folder), folder)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := keepKinds(ctx, plane.Client); err != nil {
		return nil, errors.Join(err, plane.env.Stop())
	}
	return plane, nil
}

// Own returns a control plane for one test, which stops with it: for tests that change or
// remove kinds.
func Own(tb testing.TB) *Plane {
	tb.Helper()
	folder := Folder(tb)
	return own(tb, folder, folder)
}

// Bare is like Own with only Kubernetes' own kinds: for tests that install the project's.
func Bare(tb testing.TB) *Plane {
	tb.Helper()
	return own(tb, Folder(tb), "")
}

func own(tb testing.TB, folder, kinds string) *Plane {
	tb.Helper()
	plane, err := start(environment(folder), kinds)
	if err != nil {
		tb.Fatalf("start the control plane: %v", err)
	}
	tb.Cleanup(func() {
		if err := plane.env.Stop(); err != nil {
			tb.Errorf("stop the control plane: %v", err)
		}
	})
	return plane
}

func environment(folder string) *envtest.Environment {
	env := &envtest.Environment{
		BinaryAssetsDirectory: folder,
		CRDInstallOptions:     envtest.CRDInstallOptions{MaxTime: startTimeout},
		// Other builds and tests may be using the same processors.
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  startTimeout,
	}
	// By default it uses the address of the default route's interface, and does not start
	// without such a route. Loopback can't be an endpoint of the service kubernetes, which is
	// unused here.
	env.ControlPlane.GetAPIServer().Configure().Set("advertise-address", "127.0.0.1").Set("endpoint-reconciler-type", "none")
	return env
}

// start starts a control plane with the project's kinds and Cluster API's from the folder
// kinds; with neither if that is empty.
func start(env *envtest.Environment, kinds string) (*Plane, error) {
	logs := io.Discard
	if testing.Testing() && testing.Verbose() {
		logs = os.Stderr
	}
	log.SetLogger(zap.New(zap.ConsoleEncoder(), zap.WriteTo(logs)))
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	env.Scheme = scheme
	if kinds != "" {
		if env.CRDInstallOptions.CRDs, err = clusterAPIKinds(kinds); err != nil {
			return nil, err
		}
	}
	config, err := env.Start()
	if err != nil {
		return nil, errors.Join(err, env.Stop())
	}
	if kinds != "" {
		if err := installKinds(config); err != nil {
			return nil, errors.Join(err, env.Stop())
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, errors.Join(err, env.Stop())
	}
	return &Plane{Config: config, Client: c, env: env}, nil
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "stop the control plane:", err)
	return 1
}
