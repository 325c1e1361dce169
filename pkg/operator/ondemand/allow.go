package ondemand

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/fleet"
)

// namespace returns a pod's Namespace; nil if it is gone.
func (r *Reconciler) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	var ns corev1.Namespace
	err := r.Workload.Reader().Get(ctx, client.ObjectKey{Name: name}, &ns)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // documented
	case err != nil:
		return nil, fmt.Errorf("read Namespace %s: %w", name, err)
	}
	return &ns, nil
}

// tenantOf returns the tenant whose operator serves the pods of a Namespace: exactly one of
// those in a cluster.
func tenantOf(ns *corev1.Namespace) string {
	return cmp.Or(ns.Labels[v1beta1.LabelTenant], fleet.DefaultTenant)
}

// held returns what keeps a pod from being scheduled at all; empty if nothing but the
// operator's own gate does.
func (r *Reconciler) held(ctx context.Context, pod *corev1.Pod) (string, error) {
	if gates := othersGates(pod); len(gates) > 0 {
		return "spec.schedulingGates " + strings.Join(gates, ", "), nil
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Job" || !strings.HasPrefix(owner.APIVersion, batchv1.GroupName+"/") {
		return "", nil
	}
	var job batchv1.Job
	err := r.Workload.Reader().Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, &job)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil // the pod is deleted with its Job
	case err != nil:
		return "", fmt.Errorf("read Job %s/%s: %w", pod.Namespace, owner.Name, err)
	case job.UID == owner.UID && job.Spec.Suspend != nil && *job.Spec.Suspend:
		return "spec.suspend of Job " + job.Name, nil
	}
	return "", nil
}
