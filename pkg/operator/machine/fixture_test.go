package machine_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/machine"
	"github.com/nstance/nstance/pkg/operator/planetest"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

const (
	clusterName = "c--t"
	poolID      = "knd01m7y23z9me5h9rh8r505a17vz"
)

// world is a namespace of a real API server, shards that behave, and a reconciler that
// is called by hand. The test plays Cluster API's part.
type world struct {
	*testing.T
	api    client.Client
	ns     string
	fleet  *fleet
	rec    *machine.Reconciler
	now    time.Time
	writes []string // what the reconciler changed in the API server
	hosted bool
	notes  chan string
}

func newWorld(t *testing.T, shards ...string) *world {
	t.Helper()
	plane := shared.Plane(t)
	w := &world{T: t, api: plane.Client, ns: plane.Namespace(t), fleet: newFleet(shards...), now: time.Unix(1000, 0)}
	cluster := &clusterv1.Cluster{ObjectMeta: w.meta(clusterName)}
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "api", Port: 6443}
	w.create(cluster)
	w.restart(nil)
	return w
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName}}
}

// restart begins with another process, whose calls step may have fail.
func (w *world) restart(step func(what string) (before, after error)) {
	w.Helper()
	if step == nil {
		step = func(string) (error, error) { return nil, nil }
	}
	direct, err := client.NewWithWatch(shared.Plane(w.T).Config, client.Options{Scheme: w.api.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	through := func(what string, o client.Object, call func() error) error {
		what = fmt.Sprintf("%s %T", what, o)
		before, after := step(what)
		if before != nil {
			return before
		}
		if err := call(); err != nil {
			return err
		}
		w.writes = append(w.writes, what)
		return after
	}
	w.notes = make(chan string, 100)
	w.fleet.step = step
	w.rec = &machine.Reconciler{
		Reader: w.api,
		Shards: w.fleet, Recorder: &events.FakeRecorder{Events: w.notes}, Random: rand.Reader, SelfHosted: w.hosted,
		Now: func() time.Time { return w.now },
		Client: interceptor.NewClient(direct, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				return through("patch", o, func() error { return c.Patch(ctx, o, p, opts...) })
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				return through("delete", o, func() error { return c.Delete(ctx, o, opts...) })
			},
			SubResourcePatch: func(
				ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
			) error {
				return through("status", o, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
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

func (w *world) delete(o client.Object) {
	w.Helper()
	if err := w.api.Delete(w.Context(), o); err != nil {
		w.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
}

// own makes a Machine with a NstanceMachine of its own, as a MachineSet does.
func (w *world) own(name string, change func(*clusterv1.Machine, *v1beta1.NstanceMachine)) *v1beta1.NstanceMachine {
	w.Helper()
	m := &clusterv1.Machine{ObjectMeta: w.meta(name), Spec: clusterv1.MachineSpec{
		ClusterName: clusterName, Bootstrap: clusterv1.Bootstrap{DataSecretName: new("")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceMachine", Name: name},
	}}
	nm := &v1beta1.NstanceMachine{ObjectMeta: w.meta(name), Spec: v1beta1.NstanceMachineSpec{Group: "web"}}
	if change != nil {
		change(m, nm)
	}
	m.Finalizers = append(m.Finalizers, clusterv1.MachineFinalizer) // as Cluster API's core does
	w.create(m)
	nm.OwnerReferences = append(nm.OwnerReferences, metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: m.UID, Controller: new(true),
	})
	w.create(nm)
	return nm
}

// pooled makes a NstanceMachine for a pool's instance on shard a, which runs, with the
// Machine that Cluster API makes for it, and the pool's part on the shard.
func (w *world) pooled(name string) *v1beta1.NstanceMachine {
	w.Helper()
	w.fleet.put("a", poolID, false, running)
	part := &v1beta1.NstanceShardGroup{
		ObjectMeta: w.meta("web--a"), Spec: v1beta1.NstanceShardGroupSpec{Group: "web", Shard: "a", Size: new(int32(1))},
	}
	w.create(part)
	return w.own(name, func(m *clusterv1.Machine, nm *v1beta1.NstanceMachine) {
		m.Labels[clusterv1.MachinePoolNameLabel] = "web"
		nm.Labels[clusterv1.MachinePoolNameLabel] = "web"
		nm.Spec.Shard, nm.Spec.InstanceID = "a", poolID
	})
}

// pass reconciles one NstanceMachine once.
func (w *world) pass(name string) (reconcile.Result, error) {
	return w.rec.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.ns, Name: name}})
}

// must reconciles it, and returns what it is then; nil: it is gone.
func (w *world) must(name string) *v1beta1.NstanceMachine {
	w.Helper()
	if _, err := w.pass(name); err != nil {
		w.Fatalf("reconcile %s: %v", name, err)
	}
	return w.get(name)
}

func (w *world) get(name string) *v1beta1.NstanceMachine {
	w.Helper()
	var m v1beta1.NstanceMachine
	err := w.api.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, &m)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return &m
}

// owner is the Machine of a name; nil: it is gone.
func (w *world) owner(name string) *clusterv1.Machine {
	w.Helper()
	var m clusterv1.Machine
	err := w.api.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, &m)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return &m
}

// want checks one condition: its status and reason, and words of its message.
func (w *world) want(m *v1beta1.NstanceMachine, kind string, status metav1.ConditionStatus, reason, words string) {
	w.Helper()
	c := meta.FindStatusCondition(m.Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, words) {
		w.Errorf("condition %s is %+v: want %s, %s, %q", kind, c, status, reason, words)
	}
}

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)
