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

// While there is no node, the Cluster Autoscaler learns from the MachinePool how its
// nodes are labelled and tainted. What somebody else says there stays.
func TestTheAutoscalerIsToldOfLabelsAndTaints(t *testing.T) {
	s := start(t, "a")
	s.pool("web", 0, "a")
	mp := func() *clusterv1.MachinePool {
		return &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	}
	says := func(labels, taints string) {
		t.Helper()
		s.eventually("the annotations", func() error {
			var p clusterv1.MachinePool
			s.must(s.api.Get(t.Context(), s.key("web"), &p))
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
	s.dress(map[string]string{"tier": "web", "arch": "x"}, always, plain)
	says("arch=x,tier=web", "boot=:NoExecute,dedicated=web:NoSchedule")
	s.dress(map[string]string{"tier": "db"})
	says("tier=db", "")

	s.patch(mp(), `{"metadata":{"annotations":{"`+templateLabels+`":"own=1"}}}`)
	s.dress(map[string]string{"tier": "cache"}, always)
	says("own=1", "dedicated=web:NoSchedule")
	s.dress(nil)
	s.scale("web", 1)
	s.settled("web", []string{"a"}, 1)
	says("own=1", "")
	s.patch(&v1beta1.NstanceMachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, `{"spec":{"nodeLabels":{"tier":"web"}}}`)
	says("own=1", "")
	s.patch(mp(), `{"metadata":{"annotations":{"`+templateLabels+`":null}}}`)
	says("tier=web", "")
}
