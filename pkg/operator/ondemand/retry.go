package ondemand

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// Place returns the shard on which to try again what the shard of a pod's NstanceMachine failed
// to create, with a slot there: another one, if that may have it too. It is empty if the pod is
// gone, or no shard may have its instance now.
func (r *Reconciler) Place(ctx context.Context, m *v1beta1.NstanceMachine) (shard string, err error) {
	key, ok := podOf(m)
	if !ok {
		return "", nil
	}
	pod, err := r.pod(ctx, key)
	if err != nil || pod == nil || pod.UID != types.UID(m.Labels[LabelPodUID]) {
		return "", err
	}
	now, err := r.waits(ctx, pod)
	if err != nil || now == nil {
		return "", err
	}
	ns, err := r.namespace(ctx, key.Namespace)
	if err != nil || ns == nil {
		return "", err
	}
	n, err := needsOf(ctx, r.Workload.Reader(), now)
	if err != nil {
		return "", err
	}
	a := ask{group: string(m.Spec.Group), instanceType: m.Spec.InstanceType}
	by := asker{namespace: ns.Name, labels: ns.Labels, needs: n}
	shard, _, err = r.find(ctx, m.Name, slot{pod: key, uid: pod.UID, group: a.group}, a, by, string(m.Spec.Shard))
	return shard, err
}
