//go:build integration

package operator

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/planetest"
)

// What the stories need of Kubernetes itself: pods are scheduled and run, budgets block evictions,
// and owned objects are deleted with their owner.
func TestThePlaneIsWhole(t *testing.T) {
	plane := shared.Plane(t)
	ns := plane.Namespace(t)
	node := makeNode(t, plane, ns+"-1", "docker:///"+ns+"-1")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web", Labels: map[string]string{"app": "web"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "web", Image: "web"}}
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: pod.Labels}
	budget.Spec.MinAvailable = new(intstr.FromInt32(1))
	for _, o := range []client.Object{pod, budget} {
		if err := plane.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	planetest.Eventually(t, soon, "the pod runs", func(ctx context.Context) error {
		err := plane.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if err == nil && (pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName != node.Name) {
			err = fmt.Errorf("phase %s on %q: %+v", pod.Status.Phase, pod.Spec.NodeName, pod.Status.Conditions)
		}
		return err
	})
	planetest.Eventually(t, soon, "the budget counts it", func(ctx context.Context) error {
		err := plane.Client.Get(ctx, client.ObjectKeyFromObject(budget), budget)
		if err == nil && budget.Status.CurrentHealthy != 1 {
			err = fmt.Errorf("%+v", budget.Status)
		}
		return err
	})
	evict := func() error {
		return plane.Client.SubResource("eviction").Create(t.Context(), pod, &policyv1.Eviction{})
	}
	if err := evict(); !apierrors.IsTooManyRequests(err) {
		t.Errorf("evict against the budget: %v", err)
	}

	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "policy/v1", Kind: "PodDisruptionBudget", Name: budget.Name, UID: budget.UID},
	}}}
	if err := plane.Client.Create(t.Context(), owned); err != nil {
		t.Fatal(err)
	}
	if err := plane.Client.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	gone := func(o client.Object) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		}
	}
	planetest.Eventually(t, soon, "what the budget owned goes with it", gone(owned))
	planetest.Eventually(t, soon, "the pod can be evicted", func(context.Context) error { return client.IgnoreNotFound(evict()) })
	planetest.Eventually(t, soon, "the pod goes", gone(pod))
	if err := plane.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		t.Fatal(err)
	}
	planetest.Eventually(t, soon, "the namespace goes", gone(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
}
