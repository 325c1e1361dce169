//go:build integration

package operator

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// TestNoCapacity: the provider's lack of capacity is reported on the pool and on the pods that wait
// for it, and so is its end. Then all get their instances.
func TestNoCapacity(t *testing.T) {
	// No process can be started with so large an environment, which the provider reports as a full
	// host.
	tooLarge := `{ "NSTANCE_DEBUG": "` + strings.Repeat("x", 200_000) + `" }`
	f := newFixture(t, func(shard, config string) string {
		if shard != dev2 {
			return config
		}
		return addGroup(config, "full", 0, tooLarge)
	})
	f.operate()
	f.running("web", 4)
	f.eventually("the pool is there", func(ctx context.Context) error { return f.get(ctx, "full", &v1beta1.NstanceMachinePool{}) })
	f.scale("full", 1)
	for kind, name := range map[string]string{"MachinePool": "full", "NstanceMachinePool": "full", "NstanceShardGroup": "full--" + dev2} {
		f.event("QuotaUsedUp", kind, name, "shard "+dev2, "capacity used up")
	}
	pod := f.pod("waits", func(p *corev1.Pod) {
		p.Annotations[v1beta1.AnnotationOnDemandGroup] = "full"
		p.Spec.NodeSelector[v1beta1.LabelGroup] = "full"
	})
	f.event("QuotaUsedUp", "Pod", pod.Name, "shard "+dev2, "capacity used up")

	f.event("CreatesFailing", "NstanceMachinePool", "full", "capacity used up")

	f.reconfigure(dev2, func(config string) string { return strings.Replace(config, tooLarge, "{}", 1) })
	f.running("full", 1)
	f.onDemand(1)
	f.runs(pod)
	f.event("CreatesFailing", "NstanceMachinePool", "full", "resolved")
}
