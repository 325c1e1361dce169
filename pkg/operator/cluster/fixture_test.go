package cluster_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/cluster"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

const (
	name    = "prod--default"
	account = "nstance-capi-workload"
	soon    = time.Minute
)

// world is a namespace with an operator's controller, and a clock.
type world struct {
	*planetest.Plane
	t      *testing.T
	config *rest.Config // the operator's way to the API server
	ns     string
	shards *fleet
	change func(*cluster.Reconciler)
	stop   context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	now     time.Time
	secrets []string // how all Secrets were asked for: what the answer is to be like
}

// recorder notes which requests the controller makes.
type recorder struct {
	next  http.RoundTripper
	world *world
}

func (r *recorder) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, "/secrets") {
		r.world.mu.Lock()
		r.world.secrets = append(r.world.secrets, q.Header.Get("Accept"))
		r.world.mu.Unlock()
	}
	return r.next.RoundTrip(q)
}

// begin makes a namespace and starts a controller in it.
func begin(t *testing.T, change func(*cluster.Reconciler)) *world {
	t.Helper()
	t.Parallel()
	plane := shared.Plane(t)
	w := &world{
		Plane: plane, t: t, ns: plane.Namespace(t), change: change, now: time.Now(),
		shards: &fleet{states: map[string]shards.State{"b": {Reachable: true, Known: true}, "a": {Reachable: true, Known: true}}},
	}
	w.config = plane.Allowed(t, w.ns, ".")
	w.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &recorder{next: next, world: w} })
	w.make(&corev1.ServiceAccount{ObjectMeta: w.meta(account)})
	w.start()
	return w
}

// start begins what an operator that starts would begin.
func (w *world) start() {
	w.t.Helper()
	options := w.ManagerOptions(w.ns)
	options.Client = client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}}
	mgr, err := ctrl.NewManager(w.config, options)
	if err != nil {
		w.t.Fatal(err)
	}
	r := &cluster.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Config: w.config, Shards: w.shards, Now: w.clock,
		Namespace: w.ns, Name: name, ServiceAccount: account, Lifetime: time.Hour,
	}
	if w.change != nil {
		w.change(r)
	}
	if err := r.SetupWithManager(mgr); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.ended = make(chan struct{})
	go func() {
		defer close(w.ended)
		if err := mgr.Start(ctx); err != nil {
			w.t.Errorf("the manager ended: %v", err)
		}
	}()
	w.stop = func() { cancel(); <-w.ended }
	w.t.Cleanup(w.stop)
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// later moves the clock and lets the controller look.
func (w *world) later(d time.Duration) {
	w.mu.Lock()
	w.now = w.now.Add(d)
	w.mu.Unlock()
	w.shards.tell()
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "prod--default"}}
}

func (w *world) make(o client.Object) { w.t.Helper(); w.Make(w.t, o) }

func (w *world) delete(o client.Object) { w.t.Helper(); w.Delete(w.t, o) }

func (w *world) patch(o client.Object, change func()) { w.t.Helper(); w.Patch(w.t, o, change) }

// all are the objects that the controller keeps.
type all struct {
	cluster clusterv1.Cluster
	infra   v1beta1.NstanceCluster
	control v1beta1.NstanceControlPlane
	secret  corev1.Secret
}

func (w *world) key(name string) client.ObjectKey {
	return types.NamespacedName{Namespace: w.ns, Name: name}
}

func (w *world) read(ctx context.Context) (a all, err error) {
	return a, errors.Join(
		w.Client.Get(ctx, w.key(name), &a.cluster), w.Client.Get(ctx, w.key(name), &a.infra),
		w.Client.Get(ctx, w.key(name), &a.control), w.Client.Get(ctx, w.key(capi.KubeconfigName(name)), &a.secret),
	)
}

// settled waits until all is there and says that it works.
func (w *world) settled() (a all) {
	w.t.Helper()
	planetest.Eventually(w.t, soon, "all of the Cluster is there", func(ctx context.Context) error {
		var err error
		if a, err = w.read(ctx); err != nil {
			return err
		}
		if !is(a.infra.Status.Conditions, v1beta1.ConditionReady) || !is(a.control.Status.Conditions, clusterv1.AvailableCondition) {
			return errors.New("no status yet")
		}
		return nil
	})
	return a
}

// versions change with each write.
func (a all) versions() []string {
	return []string{a.cluster.ResourceVersion, a.infra.ResourceVersion, a.control.ResourceVersion, a.secret.ResourceVersion}
}

func is(conditions []metav1.Condition, kind string) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind && c.Status == metav1.ConditionTrue })
}

func condition(conditions []metav1.Condition, kind string) (c metav1.Condition) {
	if i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind }); i >= 0 {
		c = conditions[i]
	}
	return c
}

// fleet are shards that say what the test lets them say.
type fleet struct {
	mu     sync.Mutex
	states map[string]shards.State
	heard  []func()
}

func (f *fleet) Names() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.states {
		names = append(names, name)
	}
	return names
}

func (f *fleet) State(shard string) (shards.State, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	state, ok := f.states[shard]
	return state, ok
}

func (f *fleet) Source(requests func(shards.Event) []reconcile.Request) source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.heard = append(f.heard, func() {
			for _, request := range requests(shards.Event{Of: shards.OfShard, Shard: "a"}) {
				q.Add(request)
			}
		})
		return nil
	})
}

func (f *fleet) set(shard string, state shards.State) {
	f.mu.Lock()
	f.states[shard] = state
	f.mu.Unlock()
	f.tell()
}

// tell says that a shard's state changed.
func (f *fleet) tell() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, hear := range f.heard {
		hear()
	}
}
