package pool_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

const (
	templateLabels = "capacity.cluster-autoscaler.kubernetes.io/labels"
	templateTaints = "capacity.cluster-autoscaler.kubernetes.io/taints"
)

// While a pool has no node, the Cluster Autoscaler reads the labels and taints of its nodes
// from annotations of the MachinePool. Annotations of another owner are kept.
func TestAutoscalerAnnotations(t *testing.T) {
	f := startFixture(t, "a")
	f.pool("web", 0, "a")
	mp := func() *clusterv1.MachinePool {
		return &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	}
	awaitAnnotations := func(labels, taints string) {
		t.Helper()
		f.eventually("the annotations", func() error {
			var p clusterv1.MachinePool
			f.must(f.api.Get(t.Context(), f.key("web"), &p))
			if p.Annotations[templateLabels] != labels || p.Annotations[templateTaints] != taints {
				return fmt.Errorf("they are %v", p.Annotations)
			}
			return nil
		})
	}
	always := clusterv1.MachineTaint{
		Key: "dedicated", Value: "web", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways,
	}
	plain := clusterv1.MachineTaint{
		Key: "boot", Effect: corev1.TaintEffectNoExecute, Propagation: clusterv1.MachineTaintPropagationOnInitialization,
	}
	f.setLabelsAndTaints(map[string]string{"tier": "web", "arch": "x"}, always, plain)
	awaitAnnotations("arch=x,tier=web", "boot=:NoExecute,dedicated=web:NoSchedule")
	f.setLabelsAndTaints(map[string]string{"tier": "db"})
	awaitAnnotations("tier=db", "")

	f.patch(mp(), `{"metadata":{"annotations":{"`+templateLabels+`":"own=1"}}}`)
	f.setLabelsAndTaints(map[string]string{"tier": "cache"}, always)
	awaitAnnotations("own=1", "dedicated=web:NoSchedule")
	f.setLabelsAndTaints(nil)
	f.scale("web", 1)
	f.awaitSizes("web", []string{"a"}, 1)
	awaitAnnotations("own=1", "")
	f.patch(&v1beta1.NstanceMachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, `{"spec":{"nodeLabels":{"tier":"web"}}}`)
	awaitAnnotations("own=1", "")
	f.patch(mp(), `{"metadata":{"annotations":{"`+templateLabels+`":null}}}`)
	awaitAnnotations("tier=web", "")
}
