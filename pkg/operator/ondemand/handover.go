package ondemand

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/capi"
)

// adopter returns a pod that a machine hosts and that asked for one like it, but has none: it
// was refused, or is not served yet. It gets the machine if the group allows its Namespace
// any, since that has a place already. unknown: the shard does not say now what it allows.
func (r *Reconciler) adopter(ctx context.Context, c candidate) (heir *corev1.Pod, unknown bool, err error) {
	for i := range c.hosting.pods {
		pod, infra := &c.hosting.pods[i], c.claim.infrastructure
		a, ok := asks(pod)
		if !ok || pod.UID == c.claim.owner() || a.group != c.claim.group() || a.instanceType != infra.Spec.InstanceType ||
			!pod.DeletionTimestamp.IsZero() {
			continue
		}
		if state, _ := r.Shards.State(string(infra.Spec.Shard)); !state.Synced {
			return nil, true, nil
		}
		ns, err := r.namespace(ctx, pod.Namespace)
		if err != nil {
			return nil, false, err
		}
		policy := policyOf(r.Shards.Group(string(infra.Spec.Shard), a.group).GetOnDemand())
		if ns != nil && tenantOf(ns) == r.Tenant && policy != nil && policy.AllowsNamespace(ns.Name, ns.Labels) {
			return pod, false, nil
		}
	}
	return nil, false, nil
}

// handOver makes a claim another pod's. Its Machine says whose it is, and comes first.
func (r *Reconciler) handOver(ctx context.Context, c claim, heir *corev1.Pod) error {
	if err := own(ctx, r.Client, c.machine, heir.UID, client.ObjectKeyFromObject(heir)); err != nil {
		return err
	}
	about := podMeta()
	about.Namespace, about.Name, about.UID = heir.Namespace, heir.Name, heir.UID
	r.serves(client.ObjectKeyFromObject(heir), true)
	r.recordEvent(about, corev1.EventTypeNormal, "OnDemandExchanged",
		fmt.Sprintf("Machine %s/%s, on which the pod runs, is its own now: the pod that it was requested for does not need it",
			c.machine.Namespace, c.machine.Name))
	if c.infrastructure == nil {
		return nil
	}
	return own(ctx, r.Client, c.infrastructure, heir.UID, client.ObjectKeyFromObject(heir))
}

// own sets the pod whose claim an object belongs to, unless the object has changed.
func own(ctx context.Context, api client.Writer, o client.Object, uid types.UID, pod types.NamespacedName) error {
	was, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", o)
	}
	setOwner(o, uid, pod)
	if err := api.Patch(ctx, o, capi.Locked(was), capi.FieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("hand over %T %s to pod %s: %w", o, o.GetName(), pod, err)
	}
	return nil
}

func setOwner(o metav1.Object, uid types.UID, pod types.NamespacedName) {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[LabelPodUID], annotations[AnnotationPod] = string(uid), pod.Namespace+"/"+pod.Name
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
}
