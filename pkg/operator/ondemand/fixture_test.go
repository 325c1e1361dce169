package ondemand_test

import (
	"context"
	"fmt"
	"testing"

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
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

const clusterName = "c--t"

// world is a namespace for pods and one for Machines, of a real API server, and a
// reconciler that is called by hand.
type world struct {
	*testing.T
	api    client.Client
	ns     string       // of Machines
	pods   string       // the namespace of pods
	config *rest.Config // with the rights of the controllers
	rec    *ondemand.Reconciler
	notes  chan string
	writes int
}

// past is a workload cluster that is read past any cache.
type past struct{ api client.Client }

func (p past) Client() client.Client { return p.api }

func (past) Source(client.Object, handler.MapFunc, ...predicate.Predicate) source.Source { return nil }

func newWorld(t *testing.T) *world {
	t.Helper()
	plane := shared.Plane(t)
	w := &world{T: t, api: plane.Client, ns: plane.Namespace(t), pods: plane.Namespace(t)}
	w.config = plane.Allowed(t, w.ns, ".", "../machine")
	w.config.QPS = -1
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: clusterName}}
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "api", Port: 6443}
	w.create(cluster)
	w.restart(nil)
	return w
}

// restart begins with another process, whose writes step may have fail.
func (w *world) restart(step func() (before, after error)) {
	w.Helper()
	if step == nil {
		step = func() (error, error) { return nil, nil }
	}
	direct, err := client.NewWithWatch(shared.Plane(w.T).Config, client.Options{Scheme: w.api.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	through := func(call func() error) error {
		before, after := step()
		if before != nil {
			return before
		}
		w.writes++
		if err := call(); err != nil {
			return err
		}
		return after
	}
	w.notes = make(chan string, 100)
	w.rec = &ondemand.Reconciler{
		Reader: w.api, Workload: past{w.api}, Recorder: &events.FakeRecorder{Events: w.notes},
		Cluster: client.ObjectKey{Namespace: w.ns, Name: clusterName},
		Client: interceptor.NewClient(direct, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return through(func() error { return c.Create(ctx, o, opts...) })
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				return through(func() error { return c.Delete(ctx, o, opts...) })
			},
		}),
	}
}

func (w *world) create(o client.Object) {
	w.Helper()
	if err := w.api.Create(w.Context(), o); err != nil {
		w.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// gone deletes an object, for good unless it has finalizers.
func (w *world) gone(o client.Object) {
	w.Helper()
	if err := w.api.Delete(w.Context(), o, client.GracePeriodSeconds(0)); err != nil {
		w.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
}

// pod makes a pod that asks for an instance of group web.
func (w *world) pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.pods, Name: name, Annotations: map[string]string{v1beta1.AnnotationOnDemandGroup: "web"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if change != nil {
		change(p)
	}
	w.create(p)
	return p
}

func (w *world) pass(name string) error {
	_, err := w.rec.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.pods, Name: name}})
	return err
}

// must reconciles a pod, and returns what there is of Machines and NstanceMachines.
func (w *world) must(name string) ([]clusterv1.Machine, []v1beta1.NstanceMachine) {
	w.Helper()
	if err := w.pass(name); err != nil {
		w.Fatalf("reconcile %s: %v", name, err)
	}
	return w.made()
}

func (w *world) made() ([]clusterv1.Machine, []v1beta1.NstanceMachine) {
	w.Helper()
	var machines clusterv1.MachineList
	var infrastructures v1beta1.NstanceMachineList
	for _, list := range []client.ObjectList{&machines, &infrastructures} {
		if err := w.api.List(w.Context(), list, client.InNamespace(w.ns)); err != nil {
			w.Fatal(err)
		}
	}
	return machines.Items, infrastructures.Items
}

// count checks how many of both there are.
func (w *world) count(what string, want int) {
	w.Helper()
	machines, infrastructures := w.made()
	if len(machines) != want || len(infrastructures) != want {
		w.Errorf("%s: %d Machines and %d NstanceMachines, want %d each", what, len(machines), len(infrastructures), want)
	}
}

// note is the event that was told last; empty: there is none.
func (w *world) note() string {
	select {
	case n := <-w.notes:
		return n
	default:
		return ""
	}
}

func (w *world) hold(o client.Object, finalizers ...string) {
	w.Helper()
	patch := client.MergeFrom(o.DeepCopyObject().(client.Object))
	o.SetFinalizers(finalizers)
	if err := w.api.Patch(w.Context(), o, patch); err != nil {
		w.Fatal(err)
	}
}

var errCrash = fmt.Errorf("the process ended here")
