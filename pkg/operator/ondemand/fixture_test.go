package ondemand_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/ondemand"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	"github.com/nstance/nstance/pkg/operator/workload"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

const clusterName = "c--t"

// fixture is a namespace for pods and one for Machines, in a real API server, and a reconciler that
// tests call directly.
type fixture struct {
	*testing.T
	api       client.Client
	ns        string       // of Machines
	pods      string       // the namespace of pods
	config    *rest.Config // with the controllers' permissions
	rec       *ondemand.Reconciler
	shards    *shardstest.World // whose group web allows all pods
	events    chan string
	writes    int
	instances int
	live      bool          // the controllers run in a manager
	late      time.Duration // by which the reconciler's clock is fast
}

// uncached is a workload cluster that is read without a cache.
type uncached struct{ api client.Client }

func (p uncached) Client() client.Client { return p.api }

func (p uncached) Reader() client.Reader { return p.api }

func (p uncached) NodesWith(ctx context.Context, machine workload.Identity) ([]corev1.Node, error) {
	var all corev1.NodeList
	err := p.api.List(ctx, &all)
	return slices.DeleteFunc(all.Items, func(n corev1.Node) bool { return !machine.MayBe(&n) }), err
}

func (uncached) Source(client.Object, handler.MapFunc, ...predicate.Predicate) source.Source {
	return nil
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	plane := shared.Plane(t)
	f := &fixture{T: t, api: plane.Client, ns: plane.Namespace(t), pods: plane.Namespace(t)}
	f.config = plane.Allowed(t, f.ns, ".", "../machine")
	f.config.QPS = -1
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: clusterName}}
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "api", Port: 6443}
	f.create(cluster)
	f.shards = shardstest.Start(t, "a")
	f.shards.Shard("a").AddGroup("web", 0, "knd")
	f.shards.Shard("a").AllowPods("web", anywhere(10_000))
	f.shards.Synced()
	f.restart(nil)
	return f
}

// restart replaces the reconciler, as a new process would. If inject is not nil, it is called
// for each write, and may return an error to fail it before or after it takes effect.
func (f *fixture) restart(inject func() (before, after error)) {
	f.Helper()
	if inject == nil {
		inject = func() (error, error) { return nil, nil }
	}
	direct, err := client.NewWithWatch(shared.Plane(f.T).Config, client.Options{Scheme: f.api.Scheme()})
	if err != nil {
		f.Fatal(err)
	}
	intercept := func(call func() error) error {
		before, after := inject()
		if before != nil {
			return before
		}
		f.writes++
		if err := call(); err != nil {
			return err
		}
		return after
	}
	injected := interceptor.NewClient(direct, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return intercept(func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return intercept(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return intercept(func() error { return c.Delete(ctx, o, opts...) })
		},
	})
	f.events = make(chan string, 100)
	f.rec = &ondemand.Reconciler{
		Reader: f.api, Workload: uncached{injected}, Recorder: &events.FakeRecorder{Events: f.events},
		Cluster: client.ObjectKey{Namespace: f.ns, Name: clusterName}, Shards: f.shards.Set, Tenant: "default", Random: rand.Reader,
		Now: func() time.Time { return time.Now().Add(f.late) }, Client: injected,
	}
}

func (f *fixture) create(o client.Object) {
	f.Helper()
	if err := f.api.Create(f.Context(), o); err != nil {
		f.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// delete deletes an object without a grace period; finalizers may keep it.
func (f *fixture) delete(o client.Object) {
	f.Helper()
	if err := f.api.Delete(f.Context(), o, client.GracePeriodSeconds(0)); err != nil {
		f.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
}

// pod creates a pod that requests an instance of group web.
func (f *fixture) pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	f.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.pods, Name: name, Annotations: map[string]string{v1beta1.AnnotationOnDemandGroup: "web"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if change != nil {
		change(p)
	}
	f.create(p)
	return p
}

func (f *fixture) reconcile(name string) error {
	f.objects() // which lets go what was deleted
	_, err := f.rec.Reconcile(f.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: f.pods, Name: name}})
	return err
}

// mustReconcile reconciles a pod, and returns the existing Machines and NstanceMachines.
func (f *fixture) mustReconcile(name string) ([]clusterv1.Machine, []v1beta1.NstanceMachine) {
	f.Helper()
	if err := f.reconcile(name); err != nil {
		f.Fatalf("reconcile %s: %v", name, err)
	}
	return f.objects()
}

func (f *fixture) objects() ([]clusterv1.Machine, []v1beta1.NstanceMachine) {
	f.Helper()
	var machines clusterv1.MachineList
	var infrastructures v1beta1.NstanceMachineList
	for _, list := range []client.ObjectList{&machines, &infrastructures} {
		if err := f.api.List(f.Context(), list, client.InNamespace(f.ns)); err != nil {
			f.Fatal(err)
		}
	}
	return machines.Items, slices.DeleteFunc(infrastructures.Items, f.release)
}

// release lets a deleted NstanceMachine go, as its controller does when the instance is gone.
func (f *fixture) release(m v1beta1.NstanceMachine) bool {
	f.Helper()
	gone := !f.live && !m.DeletionTimestamp.IsZero() && slices.Equal(m.Finalizers, []string{v1beta1.Finalizer})
	if gone {
		f.setFinalizers(&m)
	}
	return gone
}

// count checks the numbers of Machines and NstanceMachines.
func (f *fixture) count(what string, want int) {
	f.Helper()
	machines, infrastructures := f.objects()
	if len(machines) != want || len(infrastructures) != want {
		f.Errorf("%s: %d Machines and %d NstanceMachines, want %d each", what, len(machines), len(infrastructures), want)
	}
}

// event returns the next event, or "".
func (f *fixture) event() string {
	select {
	case n := <-f.events:
		return n
	default:
		return ""
	}
}

// lastEvent returns the newest event, or "", and drops those before it.
func (f *fixture) lastEvent() (last string) {
	for e := f.event(); e != ""; e = f.event() {
		last = e
	}
	return last
}

func (f *fixture) setFinalizers(o client.Object, finalizers ...string) {
	f.Helper()
	patch := client.MergeFrom(o.DeepCopyObject().(client.Object))
	o.SetFinalizers(finalizers)
	if err := f.api.Patch(f.Context(), o, patch); err != nil {
		f.Fatal(err)
	}
}

var errCrash = fmt.Errorf("simulated crash")
