package ondemand

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Health tells pods why their machines are missing, and replaces machines whose nodes don't
// start or are lost. Its fields must not change after the start; then it is safe for concurrent
// use.
type Health struct {
	// Client accesses the cluster with the Machines.
	Client   client.Client
	Workload Workload
	Shards   Instances
	// Recorder records events of pods, in the workload cluster.
	Recorder events.EventRecorder
	Now      func() time.Time
	// NodeStartup is how long a registered machine may take to become a node, and a kubelet may
	// be silent; 0: for ever.
	NodeStartup time.Duration

	warned warned
}

// Instances is what Health needs of the shards.
type Instances interface {
	State(shard string) (shards.State, bool)
	Instance(shard, id string) *nstancev1.InstanceStatus
}

var _ Instances = (*shards.Set)(nil)

// SetupWithManager registers the controller.
func (h *Health) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("ondemand-health").
		For(&v1beta1.NstanceMachine{}, builder.WithPredicates(healthChanges())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, SkipNameValidation: new(true)}).
		Complete(h)
}

// healthChanges selects the changes of pods' NstanceMachines that matter here.
func healthChanges() predicate.Predicate {
	ours := func(o client.Object) bool { _, ok := podOf(o); return ok }
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return ours(e.Object) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return ours(e.Object) },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, ok := e.ObjectOld.(*v1beta1.NstanceMachine)
			now, also := e.ObjectNew.(*v1beta1.NstanceMachine)
			return ok && also && ours(now) && (provisioned(was) != provisioned(now) || failureOf(was) != failureOf(now))
		},
	}
}

// Reconcile looks at the machine of one pod.
func (h *Health) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var m v1beta1.NstanceMachine
	if err := h.Client.Get(ctx, req.NamespacedName, &m); err != nil {
		if apierrors.IsNotFound(err) {
			h.warned.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	cluster, err := capi.Cluster(ctx, h.Client, &m)
	if err != nil || capi.Paused(cluster, &m) || !m.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, err
	}
	if f := failureOf(&m); f != (failure{}) && h.Now().Sub(f.at.Time) < between {
		return reconcile.Result{}, h.warn(ctx, &m, f.reason, f.note)
	}
	if !provisioned(&m) || h.NodeStartup <= 0 {
		return reconcile.Result{}, nil
	}
	after, err := h.checkNode(ctx, &m)
	return reconcile.Result{RequeueAfter: after}, err
}

// failure is why an instance could not be created; the zero value: it could, as far as is known.
type failure struct {
	reason, note string
	at           metav1.Time
}

func failureOf(m *v1beta1.NstanceMachine) failure {
	for _, c := range m.Status.Conditions {
		if c.Type != v1beta1.ConditionReady || c.Status != metav1.ConditionFalse {
			continue
		}
		switch created := m.Status.Creation; {
		case created != nil && created.RetryTime != nil && created.FailureTime != nil:
			return failure{"OnDemand" + created.Reason, c.Message, *created.FailureTime}
		case c.Reason == "CreateFailing":
			return failure{"OnDemand" + c.Reason, fmt.Sprintf("shard %s could not create the machine yet, and goes on trying: %s",
				m.Spec.Shard, c.Message), c.LastTransitionTime}
		}
	}
	return failure{}
}

func provisioned(m *v1beta1.NstanceMachine) bool {
	done := m.Status.Initialization.Provisioned
	return done != nil && *done
}

// warn records a warning on the pod of a NstanceMachine, unless one of its reason was recorded
// a short while ago, or the pod is gone.
func (h *Health) warn(ctx context.Context, m *v1beta1.NstanceMachine, reason, note string) error {
	pod, err := h.pod(ctx, m)
	if err != nil || pod == nil || !h.warned.first(client.ObjectKeyFromObject(m), string(pod.UID)+reason, h.Now()) {
		return err
	}
	h.Recorder.Eventf(pod, nil, corev1.EventTypeWarning, reason, "Provision", "%.1000s", note)
	return nil
}

// pod returns the metadata of the pod that a NstanceMachine is for; nil if it is gone.
func (h *Health) pod(ctx context.Context, m *v1beta1.NstanceMachine) (*metav1.PartialObjectMetadata, error) {
	key, _ := podOf(m)
	pod := podMeta()
	switch err := h.Workload.Client().Get(ctx, key, pod); {
	case apierrors.IsNotFound(err), err == nil && pod.UID != types.UID(m.Labels[LabelPodUID]):
		return nil, nil //nolint:nilnil // documented
	case err != nil:
		return nil, fmt.Errorf("read pod %s: %w", key, err)
	}
	return pod, nil
}

// replace deletes the Machine of a NstanceMachine, after a warning that says why: the pod gets
// another.
func (h *Health) replace(ctx context.Context, m *v1beta1.NstanceMachine, core *clusterv1.Machine, f failure) error {
	if err := h.warn(ctx, m, f.reason, f.note); err != nil {
		return err
	}
	err := h.Client.Delete(ctx, core, client.Preconditions{UID: &core.UID, ResourceVersion: &core.ResourceVersion})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete Machine %s, which has no working node: %w", core.Name, err)
	}
	return nil
}
