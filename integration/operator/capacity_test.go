//go:build integration

package operator

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// TestNoCapacity: that the provider has no room is told where people look, on the pool
// and on the pods that wait for it, and so is its end. Then everybody gets what they
// waited for.
func TestNoCapacity(t *testing.T) {
	// No process can be started with so large an environment, which the provider takes
	// for a host that is full.
	tooLarge := `{ "LARGE": "` + strings.Repeat("x", 200_000) + `" }`
	w := begin(t, func(shard, config string) string {
		if shard != dev2 {
			return config
		}
		return addGroup(config, "full", 0, tooLarge)
	})
	w.operate()
	w.running("web", 4)
	w.eventually("the pool is there", func(ctx context.Context) error { return w.get(ctx, "full", &v1beta1.NstanceMachinePool{}) })
	w.scale("full", 1)
	for kind, name := range map[string]string{"MachinePool": "full", "NstanceMachinePool": "full", "NstanceShardGroup": "full--" + dev2} {
		w.event("QuotaUsedUp", kind, name, "shard "+dev2, "capacity used up")
	}
	pod := w.pod("waits", func(p *corev1.Pod) {
		p.Annotations[v1beta1.AnnotationOnDemandGroup] = "full"
		p.Spec.NodeSelector[v1beta1.LabelGroup] = "full"
	})
	w.event("QuotaUsedUp", "Pod", pod.Name, "shard "+dev2, "capacity used up")

	w.event("CreatesFailing", "NstanceMachinePool", "full", "capacity used up")

	w.reconfigure(dev2, func(config string) string { return strings.Replace(config, tooLarge, "{}", 1) })
	w.running("full", 1)
	w.onDemand(1)
	w.runs(pod)
	w.event("CreatesFailing", "NstanceMachinePool", "full", "it is over")
}
