package ondemand_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// TestNextAttemptIsWhereTheGroupAllowsIt: what one shard could not create for a pod is tried on
// another one, if its group allows the pod.
func TestNextAttemptIsWhereTheGroupAllowsIt(t *testing.T) {
	for name, c := range map[string]struct {
		allowed []string
		bound   string // by the pod's annotation
		want    v1beta1.Name
	}{
		"on another":           {[]string{"a", "b"}, "", "b"},
		"on none":              {[]string{"a"}, "", "a"},
		"on its pod's, though": {[]string{"a", "b"}, "a", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, "a", "b")
			w.api = fake.NewClientBuilder().WithScheme(w.api.Scheme()).
				WithStatusSubresource(&v1beta1.NstanceMachine{}, &clusterv1.Machine{}).Build()
			for _, shard := range c.allowed {
				w.allow(shard, anywhere(1))
			}
			w.shards.Shard("a").RefuseAll("no such image")
			w.namespace("ci", nil)
			w.pod("ci", "job", func(p *corev1.Pod) {
				if c.bound != "" {
					p.Annotations[v1beta1.AnnotationOnDemandShard] = c.bound
				}
			})
			now := time.Now()
			p := w.process(&now)
			p.settle([]string{"job"})
			first := p.machines("default")[0]
			if first.Spec.Shard != "a" || first.Status.Creation == nil {
				t.Fatalf("spec %+v, status %+v", first.Spec, first.Status)
			}
			now = now.Add(time.Minute)
			p.settle([]string{"job"})
			m := p.machines("default")[0]
			if provisioned := m.Status.Creation == nil; m.Spec.Shard != c.want || provisioned != (c.want == "b") {
				t.Errorf("spec %+v, creation %+v", m.Spec, m.Status.Creation)
			}
			if kept := m.Spec.IdempotencyKey == first.Spec.IdempotencyKey; kept != (c.want == "a") {
				t.Errorf("keys %s and %s", first.Spec.IdempotencyKey, m.Spec.IdempotencyKey)
			}
		})
	}
}
