package ondemand

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/shards"
)

// serve creates what a pod requests and lacks. after is the requeue delay; zero: wait for an
// event.
func (r *Reconciler) serve(ctx context.Context, pod *metav1.PartialObjectMetadata, c claim) (after time.Duration, err error) {
	a, ok := asks(pod)
	todo := c.next()
	if !ok {
		if todo == makeBoth { // it has nothing, so its deletion needs no event
			r.forget(client.ObjectKeyFromObject(pod))
		}
		return 0, nil
	}
	name, err := r.nameFor(ctx, pod, c)
	if err != nil {
		return 0, err
	}
	shard := ""
	switch todo {
	case nothing:
		return 0, nil
	case unmake:
		return 0, r.unmake(ctx, c)
	case makeBoth, makeInfrastructure:
		if shard, after, err = r.admit(ctx, name, pod, a); shard == "" {
			return after, err
		}
	case makeMachine: // it has a place already
		shard = string(c.infrastructure.Spec.Shard)
		if now, err := r.waits(ctx, pod); now == nil {
			return 0, err
		}
	}
	if err := r.complete(ctx, todo, name, pod, a, shard); err != nil {
		return 0, err
	}
	r.serves(client.ObjectKeyFromObject(pod), true)
	r.recordEvent(pod, corev1.EventTypeNormal, "OnDemandRequested",
		fmt.Sprintf("requested an instance of group %s: Machine %s/%s", a.group, r.Cluster.Namespace, name))
	return 0, nil
}

// complete creates the objects that a claim lacks, the NstanceMachine first.
func (r *Reconciler) complete(
	ctx context.Context, todo step, name string, pod *metav1.PartialObjectMetadata, a ask, shard string,
) error {
	m := meta(name, pod, a, r.Cluster)
	if todo == makeBoth || todo == makeInfrastructure {
		key, err := shards.NewKey(r.Random)
		if err != nil {
			return err
		}
		if err := r.make(ctx, infrastructure(m, pod, a, shard, key)); err != nil {
			return err
		}
	}
	if todo == makeBoth || todo == makeMachine {
		return r.make(ctx, machine(m, r.Cluster, r.Shards.Group(shard, a.group)))
	}
	return nil
}

// nameFor returns the name of a pod's objects. That of its first ones may be taken, by a
// machine that was handed over.
func (r *Reconciler) nameFor(ctx context.Context, pod *metav1.PartialObjectMetadata, c claim) (string, error) {
	if name := c.name(); name != "" {
		return name, nil
	}
	for attempt := 0; ; attempt++ {
		name := objectName(pod, attempt)
		var m clusterv1.Machine
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Cluster.Namespace, Name: name}, &m)
		switch {
		case apierrors.IsNotFound(err):
			return name, nil
		case err != nil:
			return "", err
		case ownerOf(&m) == pod.UID:
			return name, nil
		}
	}
}

// admit decides whether a pod gets an instance, and on which shard; if none, an event says
// why, and after is the requeue delay.
func (r *Reconciler) admit(
	ctx context.Context, name string, pod *metav1.PartialObjectMetadata, a ask,
) (shard string, after time.Duration, err error) {
	key := client.ObjectKeyFromObject(pod)
	ns, err := r.namespace(ctx, key.Namespace)
	switch {
	case err != nil || ns == nil:
		return "", 0, err
	case tenantOf(ns) != r.Tenant:
		after, err := r.leave(ctx, pod, ns)
		return "", after, err
	}
	if err := a.check(); err != nil {
		r.recordEvent(pod, corev1.EventTypeWarning, "OnDemandRefused", err.Error())
		return "", 0, nil
	}
	r.holds.Store(key, nil) // before the read, so that no later change is missed
	now, err := r.waits(ctx, pod)
	if err != nil {
		return "", 0, err
	}
	if now == nil {
		r.holds.Delete(key)
		return "", 0, nil
	}
	by, err := r.held(ctx, now)
	if err != nil {
		return "", 0, err
	}
	if by != "" {
		r.recordEvent(pod, corev1.EventTypeNormal, "OnDemandHeld",
			fmt.Sprintf("no instance is requested while the pod is held by %s", by))
		return "", heldPause, nil
	}
	r.holds.Delete(key)
	n, err := needsOf(ctx, r.Workload.Reader(), now)
	if err != nil {
		return "", 0, err
	}
	want := slot{pod: key, uid: pod.UID, group: a.group}
	shard, refused, err := r.find(ctx, name, want, a, asker{namespace: ns.Name, labels: ns.Labels, needs: n}, "")
	switch {
	case err != nil || shard != "":
		return shard, 0, err
	case refused == "":
		return "", again, nil
	}
	r.recordEvent(pod, corev1.EventTypeWarning, "OnDemandRefused", refused)
	return "", refusedPause, nil
}

// leave leaves a pod to the operator of another tenant, and tells so if the pod has waited for long:
// there may be no such operator.
func (r *Reconciler) leave(ctx context.Context, pod *metav1.PartialObjectMetadata, ns *corev1.Namespace) (after time.Duration, err error) {
	if r.Now().Sub(pod.CreationTimestamp.Time) < othersPause {
		return othersPause, nil
	}
	now, err := r.waits(ctx, pod)
	if err != nil || now == nil {
		return 0, err
	}
	if by, err := r.held(ctx, now); err != nil || by != "" {
		return othersPause, err
	}
	label := "its label"
	if ns.Labels[v1beta1.LabelTenant] == "" {
		label = "the lack of the label"
	}
	r.recordEvent(pod, corev1.EventTypeNormal, "OnDemandOtherTenant", fmt.Sprintf(
		"Namespace %s is for the operator of tenant %s, by %s %s, and this one is of tenant %s: "+
			"label the Namespace otherwise if no such operator runs here", ns.Name, tenantOf(ns), label, v1beta1.LabelTenant, r.Tenant))
	return othersPause, nil
}

// serves records whether there are objects to be deleted with a pod, even if it no longer
// requests any.
func (r *Reconciler) serves(pod types.NamespacedName, something bool) {
	if something {
		r.served.Store(pod, nil)
	} else {
		r.served.Delete(pod)
	}
}

// forget drops the state of a pod that is gone or no longer has a request.
func (r *Reconciler) forget(pod types.NamespacedName) {
	r.told.Delete(pod)
	r.holds.Delete(pod)
	r.looks.all.Delete(pod)
	r.slots.free(pod, "")
}

// make creates an object. AlreadyExists is no error: it was just created.
func (r *Reconciler) make(ctx context.Context, o client.Object) error {
	err := r.Client.Create(ctx, o, capi.FieldOwner)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// waits returns the full pod; nil if an instance is of no use to it.
func (r *Reconciler) waits(ctx context.Context, pod *metav1.PartialObjectMetadata) (*corev1.Pod, error) {
	c := r.Workload.Client()
	now := &corev1.Pod{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
		return nil, client.IgnoreNotFound(err) // its deletion is an event too
	}
	if now.UID != pod.UID || !now.DeletionTimestamp.IsZero() {
		return nil, nil //nolint:nilnil // documented
	}
	there := true
	if now.Spec.NodeName != "" {
		err := c.Get(ctx, client.ObjectKey{Name: now.Spec.NodeName}, &corev1.Node{})
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		there = err == nil
	}
	r.remember(now)
	if finished(now, there) {
		return nil, nil //nolint:nilnil // documented
	}
	a, _ := asks(now)
	if other, err := r.elsewhere(ctx, now.Spec.NodeName, a.group); err != nil || other {
		return nil, err
	}
	return now, nil
}
