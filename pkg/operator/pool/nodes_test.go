package pool_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// dressed waits until a node has these taints (of the pool's and the test's) and labels.
func (s *stage) dressed(name string, labels map[string]string, taints ...string) {
	s.t.Helper()
	s.eventually("the labels and taints of "+name, func() error {
		var n corev1.Node
		s.must(s.api.Get(s.t.Context(), client.ObjectKey{Name: name}, &n))
		var has []string
		for _, t := range n.Spec.Taints {
			if t.Key != corev1.TaintNodeNotReady { // which the API server sets on new nodes
				has = append(has, t.ToString())
			}
		}
		slices.Sort(has)
		if !slices.Equal(has, taints) || !maps.Equal(n.Labels, labels) {
			return fmt.Errorf("it has %v and %v, want %v and %v", n.Labels, has, labels, taints)
		}
		return nil
	})
}

func (s *stage) dress(labels map[string]string, taints ...clusterv1.MachineTaint) {
	s.t.Helper()
	s.eventually("the pool is changed", func() error {
		p := s.get("web")
		p.Spec.NodeLabels, p.Spec.NodeTaints = labels, taints
		return s.api.Update(s.t.Context(), p)
	})
}

func taint(key, value string, when clusterv1.MachineTaintPropagation) clusterv1.MachineTaint {
	return clusterv1.MachineTaint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule, Propagation: when}
}

func TestLabelsAndTaintsReachTheNodes(t *testing.T) {
	const always, first = clusterv1.MachineTaintPropagationAlways, clusterv1.MachineTaintPropagationOnInitialization
	s := start(t, "a")
	s.pool("web", 2, "a")
	s.settled("web", []string{"a"}, 2)
	s.listed("web", s.providerIDs("web", "a"))
	ids := s.living("a", "web")
	s.dress(map[string]string{"tier": "web", "zone": "x"}, taint("mine", "1", always), taint("boot", "1", first))
	s.node(ids[0], corev1.Taint{Key: "other", Value: "1", Effect: corev1.TaintEffectNoSchedule})
	s.dressed(ids[0], map[string]string{"tier": "web", "zone": "x"}, "boot=1:NoSchedule", "mine=1:NoSchedule", "other=1:NoSchedule")

	// The one comes back, the other does not; a label that others set stays.
	s.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ids[0]}},
		`{"metadata":{"labels":{"own":"1","tier":"none"}},"spec":{"taints":null}}`)
	s.dressed(ids[0], map[string]string{"tier": "web", "zone": "x", "own": "1"}, "mine=1:NoSchedule")

	// What the pool has no more goes, and what it has for the beginning is not set late.
	s.dress(map[string]string{"tier": "db"}, taint("boot", "2", first), taint("late", "1", first))
	s.dressed(ids[0], map[string]string{"tier": "db", "own": "1"})
	s.node(ids[1])
	s.dressed(ids[1], map[string]string{"tier": "db"}, "boot=2:NoSchedule", "late=1:NoSchedule")

	// An always wanted one that is then for the beginning only stays and is left alone.
	s.dress(nil, taint("mine", "1", always))
	s.dressed(ids[0], map[string]string{"own": "1"}, "mine=1:NoSchedule")
	s.dress(nil, taint("mine", "1", first))
	s.eventually("it is not the pool's any more", func() error {
		var n corev1.Node
		s.must(s.api.Get(t.Context(), client.ObjectKey{Name: ids[0]}, &n))
		if got := n.Annotations["nstance.dev/from-pool"]; got != "{}" {
			return fmt.Errorf("the annotation is %q", got)
		}
		return nil
	})
	s.dressed(ids[0], map[string]string{"own": "1"}, "mine=1:NoSchedule")
}

// What a machine has is said by the provider, or else learned from nodes: the least,
// so that what fits once fits everywhere. It stays when the last node goes.
func TestCapacityIsToldOrLearned(t *testing.T) {
	s := newStage(t, "a")
	s.world.Shard("a").SetCapacity("small", nil)
	s.world.Shard("a").SetCapacity("huge", &nstancev1.MachineCapacity{CpuMillis: 64000, MemoryBytes: 256 << 30, Arch: "arm64"})
	s.run(s.world)
	s.pool("web", 2, "a")
	s.patch(&v1beta1.NstanceMachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, `{"spec":{"instanceType":"unheard-of"}}`)
	s.settled("web", []string{"a"}, 2)
	has := func(cpu, memory, arch string) {
		t.Helper()
		s.eventually("the capacity", func() error {
			st := s.get("web").Status
			if st.Capacity.Cpu().Cmp(resource.MustParse(cpu)) != 0 || st.Capacity.Memory().Cmp(resource.MustParse(memory)) != 0 ||
				st.NodeInfo.Architecture != arch || st.NodeInfo.OperatingSystem != "linux" {
				return fmt.Errorf("it is %v, %+v", st.Capacity, st.NodeInfo)
			}
			return nil
		})
	}
	s.listed("web", s.providerIDs("web", "a"))
	for i, id := range s.living("a", "web") {
		s.node(id)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id}}
		s.must(s.api.Status().Patch(t.Context(), n, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
			`{"status":{"capacity":{"cpu":"%d","memory":"%dGi","pods":"110"},"nodeInfo":{"architecture":"amd64"}}}`, 4+i, 16-i))))
	}
	has("4", "15Gi", "amd64")
	s.patch(&v1beta1.NstanceMachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, `{"spec":{"instanceType":"huge"}}`)
	has("64", "256Gi", "arm64")
	s.scale("web", 0)
	s.listed("web", nil)
	has("64", "256Gi", "arm64")
}

// Without the workload cluster all that does not need it goes on.
func TestNodesThatCantBeReadHoldNothingUp(t *testing.T) {
	s := newStage(t, "a")
	s.nodes.lost = errors.New("no connection")
	s.grace = 1
	s.run(s.world)
	s.pool("web", 3, "a")
	s.settled("web", []string{"a"}, 3)
	s.machines("web", 3)
	s.scale("web", 1)
	s.settled("web", []string{"a"}, 1)
	s.listed("web", s.providerIDs("web", "a"))
}
