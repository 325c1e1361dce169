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
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/cluster"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

const (
	name    = "prod--default"
	account = "nstance-capi-workload"
	soon    = planetest.Patience
)

// fixture is a namespace with the shards a and b, a running controller, and a clock.
type fixture struct {
	*planetest.Plane
	t      *testing.T
	config *rest.Config // of the operator's client
	ns     string
	shards *shardstest.World
	change func(*cluster.Reconciler)
	stop   context.CancelFunc
	ended  chan struct{}
	cached client.Client // the manager's client, which reads from the controller's cache

	mu      sync.Mutex
	now     time.Time
	secrets []string // Accept headers of the requests for all Secrets
}

// recorder records the controller's requests for all Secrets.
type recorder struct {
	next http.RoundTripper
	of   *fixture
}

func (r *recorder) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, "/secrets") {
		r.of.mu.Lock()
		r.of.secrets = append(r.of.secrets, q.Header.Get("Accept"))
		r.of.mu.Unlock()
	}
	return r.next.RoundTrip(q)
}

// newFixture creates a namespace and starts a controller in it.
func newFixture(t *testing.T, change func(*cluster.Reconciler)) *fixture {
	t.Helper()
	t.Parallel()
	plane := shared.Plane(t)
	f := &fixture{
		Plane: plane, t: t, ns: plane.Namespace(t), change: change, now: time.Now(), shards: shardstest.Start(t, "a", "b"),
	}
	f.shards.Synced() // otherwise their state changes during the test
	f.config = plane.AllowedNames(t, f.ns, map[string][]string{
		"example-cluster--default-kubeconfig": {capi.KubeconfigName(name)}, "nstance-capi-workload": {account, "missing"},
	}, ".")
	f.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &recorder{next: next, of: f} })
	f.create(&corev1.ServiceAccount{ObjectMeta: f.meta(account)})
	f.start()
	return f
}

// start starts the controller, as a new operator does.
func (f *fixture) start() {
	f.t.Helper()
	options := f.ManagerOptions(f.ns)
	options.Client = client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}}
	options.Cache.ByObject = capi.Cache(name)
	mgr, err := ctrl.NewManager(f.config, options)
	if err != nil {
		f.t.Fatal(err)
	}
	f.cached = mgr.GetClient()
	r := &cluster.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Config: f.config, Shards: f.shards.Set, Now: f.clock,
		Namespace: f.ns, Name: name, ServiceAccount: account, Lifetime: time.Hour,
	}
	if f.change != nil {
		f.change(r)
	}
	if err := r.SetupWithManager(mgr); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.ended = make(chan struct{})
	go func() {
		defer close(f.ended)
		if err := mgr.Start(ctx); err != nil {
			f.t.Errorf("manager: %v", err)
		}
	}()
	f.stop = func() { cancel(); <-f.ended }
	f.t.Cleanup(f.stop)
}

func (f *fixture) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// advance advances the clock, and triggers a reconcile.
func (f *fixture) advance(d time.Duration) {
	f.mu.Lock()
	f.now = f.now.Add(d)
	f.mu.Unlock()
	f.shards.Reconnect()
}

func (f *fixture) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: f.ns, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "prod--default"}}
}

func (f *fixture) create(o client.Object) { f.t.Helper(); f.Make(f.t, o) }

func (f *fixture) delete(o client.Object) { f.t.Helper(); f.Delete(f.t, o) }

func (f *fixture) patch(o client.Object, change func()) { f.t.Helper(); f.Patch(f.t, o, change) }

// objects are the objects that the controller manages.
type objects struct {
	cluster clusterv1.Cluster
	infra   v1beta1.NstanceCluster
	control v1beta1.NstanceControlPlane
	secret  corev1.Secret
}

func (f *fixture) key(name string) client.ObjectKey {
	return types.NamespacedName{Namespace: f.ns, Name: name}
}

func (f *fixture) read(ctx context.Context) (a objects, err error) {
	return a, errors.Join(
		f.Client.Get(ctx, f.key(name), &a.cluster), f.Client.Get(ctx, f.key(name), &a.infra),
		f.Client.Get(ctx, f.key(name), &a.control), f.Client.Get(ctx, f.key(capi.KubeconfigName(name)), &a.secret),
	)
}

// awaitReady waits until all objects exist and are ready.
func (f *fixture) awaitReady() (a objects) {
	f.t.Helper()
	planetest.Eventually(f.t, soon, "the Cluster's objects are ready", func(ctx context.Context) error {
		var err error
		if a, err = f.read(ctx); err != nil {
			return err
		}
		if !is(a.infra.Status.Conditions, v1beta1.ConditionReady) || !is(a.control.Status.Conditions, clusterv1.AvailableCondition) {
			return errors.New("not ready yet")
		}
		return nil
	})
	return a
}

// versions returns a version of each object, which changes with each write.
func (a objects) versions() map[string]string {
	return map[string]string{
		"cluster": a.cluster.ResourceVersion, "infra": planetest.Text(&a.infra), "control": planetest.Text(&a.control),
		"secret": a.secret.ResourceVersion,
	}
}

// atRest waits until nothing is written any more, although the controller keeps receiving
// events of the shards.
func (f *fixture) atRest() (a objects) {
	f.t.Helper()
	f.awaitReady()
	planetest.AtRest(f.t, time.Second, "the Cluster's objects", func(ctx context.Context) (map[string]string, error) {
		var err error
		f.shards.Reconnect()
		a, err = f.read(ctx)
		return a.versions(), err
	})
	return a
}

// awaitCached waits until the controller's cache has the current version of an object, or its
// deletion.
func (f *fixture) awaitCached(o client.Object) { f.t.Helper(); f.Cached(f.t, f.cached, o) }

func is(conditions []metav1.Condition, kind string) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind && c.Status == metav1.ConditionTrue })
}

func condition(conditions []metav1.Condition, kind string) (c metav1.Condition) {
	if i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind }); i >= 0 {
		c = conditions[i]
	}
	return c
}
