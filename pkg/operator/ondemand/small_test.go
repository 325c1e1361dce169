package ondemand_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/ondemand"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

var errQuota = errors.New("exceeded quota")

// fakeCluster is an in-memory API server with shards, and the operators of tenants, each with a
// namespace that is named like the tenant.
type fakeCluster struct {
	*testing.T
	api    client.WithWatch
	shards *shardstest.World
	// stale: the operators' caches have no Machines.
	stale atomic.Bool
	// quota: the API server refuses the operators' creates.
	quota atomic.Bool
	mu    sync.Mutex
	uids  int
}

// operator is the operator of a tenant.
type operator struct {
	*ondemand.Reconciler
	cluster *fakeCluster
	events  chan string
}

func newFakeCluster(t *testing.T, shards ...string) *fakeCluster {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	w := &fakeCluster{T: t, api: fake.NewClientBuilder().WithScheme(s).Build(), shards: shardstest.Start(t, shards...)}
	for _, name := range shards {
		w.shards.Shard(name).AddGroup("web", 0, "knd")
	}
	w.shards.Synced()
	return w
}

// allow sets the on-demand policy of a shard's group, and waits until the Set has it.
func (w *fakeCluster) allow(shard string, policy *nstancev1.OnDemand) {
	w.Helper()
	w.shards.Shard(shard).AllowPods("web", policy)
	shardstest.Eventually(w.T, "the Set has the policy", func() bool {
		return w.shards.Set.Group(shard, "web").GetOnDemand().String() == policy.String()
	})
}

func (w *fakeCluster) create(o client.Object) {
	w.Helper()
	w.mu.Lock()
	w.uids++
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.uids)))
	w.mu.Unlock()
	if err := w.api.Create(w.Context(), o); err != nil {
		w.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

func (w *fakeCluster) namespace(name string, labels map[string]string) {
	w.Helper()
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

// pod creates a pod that requests an instance of group web.
func (w *fakeCluster) pod(namespace, name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Annotations: map[string]string{v1beta1.AnnotationOnDemandGroup: "web"},
	}}
	for _, change := range changes {
		change(p)
	}
	w.create(p)
	return p
}

// operator starts the operator of a tenant, or its next process.
func (w *fakeCluster) operator(tenant string) *operator {
	w.Helper()
	key := client.ObjectKey{Namespace: tenant, Name: clusterName}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := w.api.Get(w.Context(), key, cluster); err != nil {
		w.create(cluster)
	}
	cached := interceptor.NewClient(w.api, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if w.quota.Load() {
				return errQuota
			}
			return c.Create(ctx, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if w.stale.Load() {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
	o := &operator{cluster: w, events: make(chan string, 1000)}
	o.Reconciler = &ondemand.Reconciler{
		Client: cached, Reader: w.api, Workload: uncached{w.api}, Recorder: &events.FakeRecorder{Events: o.events},
		Shards: w.shards.Set, Tenant: tenant, Now: time.Now, Random: rand.Reader, Cluster: key,
	}
	return o
}

// reconcile reconciles a pod, and returns after how long it is requeued.
func (o *operator) reconcile(namespace, name string) time.Duration {
	o.cluster.Helper()
	key := client.ObjectKey{Namespace: namespace, Name: name}
	result, err := o.Reconcile(o.cluster.Context(), reconcile.Request{NamespacedName: key})
	if o.cluster.quota.Load() != errors.Is(err, errQuota) || err != nil && !errors.Is(err, errQuota) {
		o.cluster.Errorf("reconcile %s: %v", key, err)
	}
	return result.RequeueAfter
}

// takeEvents returns the events since the last call.
func (o *operator) takeEvents() string {
	var all []string
	for {
		select {
		case event := <-o.events:
			all = append(all, event)
		default:
			return strings.Join(all, "\n")
		}
	}
}

// machines returns the NstanceMachines in an operator's namespace.
func (w *fakeCluster) machines(tenant string) []v1beta1.NstanceMachine {
	w.Helper()
	var infrastructures v1beta1.NstanceMachineList
	var machines clusterv1.MachineList
	for _, list := range []client.ObjectList{&infrastructures, &machines} {
		if err := w.api.List(w.Context(), list, client.InNamespace(tenant)); err != nil {
			w.Fatal(err)
		}
	}
	if len(infrastructures.Items) != len(machines.Items) {
		w.Errorf("%d NstanceMachines and %d Machines", len(infrastructures.Items), len(machines.Items))
	}
	return infrastructures.Items
}

func (w *fakeCluster) wantMachines(what, tenant string, want int) {
	w.Helper()
	if all := w.machines(tenant); len(all) != want {
		w.Errorf("%s: %d Machines, want %d", what, len(all), want)
	}
}

func anywhere(most int32) *nstancev1.OnDemand {
	return &nstancev1.OnDemand{Namespaces: []string{"*"}, Max: most}
}

func gated(p *corev1.Pod) {
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/queue"}}
}

func largest(p *corev1.Pod) { p.Annotations[v1beta1.AnnotationOnDemandInstanceType] = "p5.48xlarge" }
