package operator_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/freeport"
	"github.com/nstance/nstance/pkg/operator"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/registration/registrationtest"
	"github.com/nstance/nstance/pkg/operator/settings"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

var shared planetest.Shared

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	shared.Main(m)
}

// fixture is a namespace, and a cluster with working shards that register operators.
type fixture struct {
	t         *testing.T
	plane     *planetest.Plane
	namespace string
	shards    *shardstest.World
	register  *registrationtest.Cluster
	at        map[string]registrationtest.Shard
	file      string
	rest      *rest.Config      // the client of the API server
	env       map[string]string // of the operators
	now       func() time.Time  // of the operators
	patience  time.Duration     // of the operators with a shard
}

// rooms are the folders whose markers make up the operator's roles.
func rooms(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"."}
	for _, file := range files {
		all = append(all, filepath.Dir(file))
	}
	return slices.Compact(all)
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	plane := shared.Plane(t)
	f := &fixture{
		t: t, plane: plane, namespace: plane.Namespace(t), shards: shardstest.New(t, nil, "one", "two"),
		at: map[string]registrationtest.Shard{}, file: filepath.Join(t.TempDir(), "config.yaml"), env: map[string]string{},
		now: time.Now, patience: time.Minute,
	}
	f.rest = plane.AllowedNames(t, f.namespace, map[string][]string{
		"example-cluster--default-kubeconfig": {capi.KubeconfigName(capi.ClusterName(registrationtest.Name, "default"))},
	}, rooms(t)...)
	f.register = registrationtest.New(t, f.shards.CA())
	f.at["one"], f.at["two"] = f.register.Shard("one"), f.register.Shard("two")
	f.configure("one", "two")
	return f
}

// configure replaces the configuration file.
func (f *fixture) configure(ids ...string) {
	f.t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "cluster_id: %s\nshards:\n", registrationtest.Name)
	for _, id := range ids {
		fmt.Fprintf(&text, "  %s: {registration_addr: %q, operator_addr: %q}\n", id, f.at[id].Registration, f.shards.Addr(id))
	}
	f.write(text.String())
}

// write replaces the configuration file atomically: half of it would be another one.
func (f *fixture) write(text string) {
	f.t.Helper()
	next := f.file + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(next, f.file); err != nil {
		f.t.Fatal(err)
	}
}

// given creates the objects that a user has to create: the CA and, optionally, a nonce.
func (f *fixture) given(nonce bool) {
	f.t.Helper()
	meta := metav1.ObjectMeta{Namespace: f.namespace, Name: "nstance-cluster-ca"}
	cas := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"ca.crt": string(f.register.CAs())}}
	if err := f.plane.Client.Create(f.t.Context(), cas); err != nil {
		f.t.Fatal(err)
	}
	if meta.Name = "nstance-operator-nonce"; !nonce {
		return
	}
	secret := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"nonce.jwt": []byte(registrationtest.Nonce)}}
	if err := f.plane.Client.Create(f.t.Context(), secret); err != nil {
		f.t.Fatal(err)
	}
}

// dial connects to loopback addresses, and otherwise to the in-memory shards.
func (f *fixture) dial(ctx context.Context, addr string) (net.Conn, error) {
	if !strings.HasPrefix(addr, "127.") {
		return f.shards.Dial(ctx, addr)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

// process is one operator.
type process struct {
	t      *testing.T
	health string
	stop   context.CancelFunc
	ended  chan error

	mu   sync.Mutex
	said []string
}

// start runs an operator with flags, until the end of the test or before.
func (f *fixture) start(flags ...string) *process {
	f.t.Helper()
	p := &process{t: f.t, health: freeAddr(f.t), ended: make(chan error, 1)}
	args := append([]string{"--config", f.file, "--namespace", f.namespace, "--health-probe-bind-address", p.health}, flags...)
	s, err := settings.Parse(args, settings.World{
		Getenv:   func(name string) string { return f.env[name] },
		ReadFile: os.ReadFile, Output: f.t.Output(),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.ended <- operator.Run(ctx, operator.Config{
			Settings: s, REST: f.rest, Version: "test", Host: "test", ReadFile: os.ReadFile, Now: f.now,
			Random: func() float64 { return 0 }, Entropy: rand.Reader, Dialer: f.dial, Logger: funcr.New(p.hear, funcr.Options{}),
			ShardTimeout: f.patience,
		})
	}()
	f.t.Cleanup(func() { stop(); <-done })
	return p
}

func (p *process) hear(_, line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, line)
}

// heard counts the lines of the log that contain a text.
func (p *process) heard(text string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(slices.Collect(func(yield func(string) bool) {
		for _, line := range p.said {
			if strings.Contains(line, text) && !yield(line) {
				return
			}
		}
	}))
}

// ready reports whether the operator is ready.
func (p *process) ready() bool { return p.readiness() == http.StatusOK }

// readiness returns the status of the operator's readiness probe; 0: no answer.
func (p *process) readiness() int {
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.health+"/readyz", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

// end stops the operator and returns its result.
func (p *process) end() error {
	p.stop()
	return p.wait()
}

// wait returns the result of an operator that ends by itself.
func (p *process) wait() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(planetest.Patience):
		p.t.Fatal("the operator does not end")
		return nil
	}
}

// elect sets the holder of the operators' Lease for an hour; empty: none.
func (f *fixture) elect(holder string) {
	f.t.Helper()
	meta := metav1.ObjectMeta{Namespace: f.namespace, Name: "nstance-operator-leader-election"}
	shardstest.Eventually(f.t, fmt.Sprintf("the Lease is that of %q", holder), func() bool {
		lease := coordinationv1.Lease{ObjectMeta: meta}
		err := f.plane.Client.Get(f.t.Context(), client.ObjectKeyFromObject(&lease), &lease)
		now := metav1.NowMicro()
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(3600)), AcquireTime: &now, RenewTime: &now, LeaseTransitions: new(int32(1)),
		}
		switch {
		case apierrors.IsNotFound(err):
			return f.plane.Client.Create(f.t.Context(), &lease) == nil
		case err != nil:
			f.t.Fatal(err)
		}
		return f.plane.Client.Update(f.t.Context(), &lease) == nil
	})
}

// watched waits until the operator has opened all streams of a shard, at least n times.
func (f *fixture) watched(id string, n int) {
	f.t.Helper()
	shardstest.Eventually(f.t, fmt.Sprintf("shard %s is watched, %d times", id, n), func() bool { return f.watches(id) >= n })
}

func (f *fixture) watches(id string) int { return len(f.shards.Shard(id).Calls("WatchInstances")) }

func freeAddr(t *testing.T) string {
	t.Helper()
	ports, err := freeport.Find(1)
	if err != nil {
		t.Fatal(err)
	}
	return freeport.Address(ports[0])
}
