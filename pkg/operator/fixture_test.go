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

	"github.com/nstance/nstance/pkg/operator"
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

// world is a namespace, and a cluster whose shards register operators and work for them.
type world struct {
	t         *testing.T
	plane     *planetest.Plane
	namespace string
	shards    *shardstest.World
	register  *registrationtest.Cluster
	at        map[string]registrationtest.Shard
	file      string
	rest      *rest.Config      // the way to the API server
	env       map[string]string // of the operators
	now       func() time.Time  // of the operators
}

// rooms are the folders whose markers make up the operator's rights.
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

func newWorld(t *testing.T) *world {
	t.Helper()
	plane := shared.Plane(t)
	w := &world{
		t: t, plane: plane, namespace: plane.Namespace(t), shards: shardstest.New(t, nil, "one", "two"),
		at: map[string]registrationtest.Shard{}, file: filepath.Join(t.TempDir(), "config.yaml"), env: map[string]string{},
		now: time.Now,
	}
	w.rest = plane.Allowed(t, w.namespace, rooms(t)...)
	w.register = registrationtest.New(t, w.shards.CA())
	w.at["one"], w.at["two"] = w.register.Shard("one"), w.register.Shard("two")
	w.configure("one", "two")
	return w
}

// configure writes the configuration file anew.
func (w *world) configure(ids ...string) {
	w.t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "cluster_id: %s\nshards:\n", registrationtest.Name)
	for _, id := range ids {
		fmt.Fprintf(&text, "  %s: {registration_addr: %q, operator_addr: %q}\n", id, w.at[id].Registration, w.shards.Addr(id))
	}
	if err := os.WriteFile(w.file, []byte(text.String()), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// given puts the objects into the namespace that a user has to: the CA and, if wanted,
// a nonce.
func (w *world) given(nonce bool) {
	w.t.Helper()
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: "nstance-cluster-ca"}
	cas := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"ca.crt": string(w.register.CAs())}}
	if err := w.plane.Client.Create(w.t.Context(), cas); err != nil {
		w.t.Fatal(err)
	}
	if meta.Name = "nstance-operator-nonce"; !nonce {
		return
	}
	secret := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"nonce.jwt": []byte(registrationtest.Nonce)}}
	if err := w.plane.Client.Create(w.t.Context(), secret); err != nil {
		w.t.Fatal(err)
	}
}

// dial reaches what listens on the loopback interface, and else the shards in memory.
func (w *world) dial(ctx context.Context, addr string) (net.Conn, error) {
	if !strings.HasPrefix(addr, "127.") {
		return w.shards.Dial(ctx, addr)
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

// start runs an operator with flags, until the test ends at the latest.
func (w *world) start(flags ...string) *process {
	w.t.Helper()
	p := &process{t: w.t, health: freeAddr(w.t), ended: make(chan error, 1)}
	args := append([]string{"--config", w.file, "--namespace", w.namespace, "--health-probe-bind-address", p.health}, flags...)
	s, err := settings.Parse(args, settings.World{
		LookupEnv: func(name string) (string, bool) { value, ok := w.env[name]; return value, ok },
		ReadFile:  os.ReadFile, Output: w.t.Output(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.ended <- operator.Run(ctx, operator.Config{
			Settings: s, REST: w.rest, Version: "test", Host: "test", ReadFile: os.ReadFile, Now: w.now,
			Random: func() float64 { return 0 }, Entropy: rand.Reader, Dialer: w.dial, Logger: funcr.New(p.hear, funcr.Options{}),
			ShardTimeout: 5 * time.Second,
		})
	}()
	w.t.Cleanup(func() { stop(); <-done })
	return p
}

func (p *process) hear(_, line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, line)
}

// heard counts the lines of the log in which there is a text.
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

// ready reports whether the operator answers that it is.
func (p *process) ready() bool { return p.readiness() == http.StatusOK }

// readiness is the status of the operator's answer; 0: there is none.
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

// end stops the operator and returns how it ended.
func (p *process) end() error {
	p.stop()
	return p.wait()
}

// wait returns how the operator ended by itself.
func (p *process) wait() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(time.Minute):
		p.t.Fatal("the operator does not end")
		return nil
	}
}

// elect has a holder have the operators' Lease for an hour; "": nobody has it.
func (w *world) elect(holder string) {
	w.t.Helper()
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: "nstance-operator-leader-election"}
	shardstest.Eventually(w.t, fmt.Sprintf("the Lease is that of %q", holder), func() bool {
		lease := coordinationv1.Lease{ObjectMeta: meta}
		err := w.plane.Client.Get(w.t.Context(), client.ObjectKeyFromObject(&lease), &lease)
		now := metav1.NowMicro()
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(3600)), AcquireTime: &now, RenewTime: &now, LeaseTransitions: new(int32(1)),
		}
		switch {
		case apierrors.IsNotFound(err):
			return w.plane.Client.Create(w.t.Context(), &lease) == nil
		case err != nil:
			w.t.Fatal(err)
		}
		return w.plane.Client.Update(w.t.Context(), &lease) == nil
	})
}

// watched waits until a shard has been asked for all of it, n times or more.
func (w *world) watched(id string, n int) {
	w.t.Helper()
	shardstest.Eventually(w.t, fmt.Sprintf("shard %s is watched, %d times", id, n), func() bool { return w.watches(id) >= n })
}

func (w *world) watches(id string) int { return len(w.shards.Shard(id).Calls("WatchInstances")) }

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
