package nodes

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// Nstance's labels on these Nodes. The first two name the owner.
const (
	labelCluster = "nstance.dev/cluster"
	labelShard   = "nstance.dev/shard"
	labelGroup   = "nstance.dev/group"
)

// ownerLabels select the Nodes of a shard.
func ownerLabels(scope provider.Scope) map[string]string {
	return map[string]string{labelCluster: scope.ClusterID, labelShard: scope.Shard}
}

func nodeFor(vm provider.VM) *applycorev1.NodeApplyConfiguration {
	return applycorev1.Node(string(vm.ID))
}

func hostname(vm provider.VM) string { return cmp.Or(vm.Hostname, string(vm.ID)) }

func (k *syncer) labels(vm provider.VM) map[string]string {
	all := ownerLabels(k.cfg.Scope)
	maps.Copy(all, map[string]string{
		labelGroup:           vm.Tags[provider.TagGroup],
		corev1.LabelHostname: hostname(vm), corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
	})
	return all
}

func (k *syncer) providerID(vm provider.VM) string {
	return fleet.NodeProviderID(k.cfg.Kind, "", vm.ProviderID)
}

func addresses(vm provider.VM) (all []corev1.NodeAddress) {
	for _, a := range vm.Addresses {
		all = append(all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	return append(all, corev1.NodeAddress{Type: corev1.NodeHostName, Address: hostname(vm)})
}

// upToDate reports whether a Node matches its machine.
func (k *syncer) upToDate(n *corev1.Node, vm provider.VM) bool {
	for label, want := range k.labels(vm) {
		if got, ok := n.Labels[label]; !ok || got != want {
			return false
		}
	}
	return n.Spec.ProviderID == k.providerID(vm) && knows(n) && slices.Equal(n.Status.Addresses, addresses(vm))
}

// knows reports whether a Node has all conditions. The node lifecycle controller sets Unknown
// on a Node without a heartbeat; other manual changes stay.
func knows(n *corev1.Node) bool {
	for _, want := range healthy() {
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == want.kind && c.Status != corev1.ConditionUnknown
		}) {
			return false
		}
	}
	return true
}

// condition is one of a Node that is well.
type condition struct {
	kind           corev1.NodeConditionType
	status         corev1.ConditionStatus
	reason, format string // of the message, with the provider's kind
}

// healthy returns the conditions of a Node that is well, as a kubelet sets them. Cluster API
// counts a Machine as ready only if its Node has all four.
func healthy() []condition {
	const none = "no kubelet runs on this machine of provider %s, so nothing is measured"
	return []condition{
		{corev1.NodeReady, corev1.ConditionTrue, "MachineRuns", "the machine of provider %s runs; no kubelet does"},
		{corev1.NodeMemoryPressure, corev1.ConditionFalse, "NotMeasured", none},
		{corev1.NodeDiskPressure, corev1.ConditionFalse, "NotMeasured", none},
		{corev1.NodePIDPressure, corev1.ConditionFalse, "NotMeasured", none},
	}
}

// spec returns a machine's Node without its status.
func (k *syncer) spec(vm provider.VM) *applycorev1.NodeApplyConfiguration {
	return nodeFor(vm).WithLabels(k.labels(vm)).WithSpec(applycorev1.NodeSpec().WithProviderID(k.providerID(vm)))
}

func (k *syncer) status(vm provider.VM) *applycorev1.NodeStatusApplyConfiguration {
	room := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	now := metav1.NewTime(k.cfg.Now().UTC().Truncate(time.Second))
	s := applycorev1.NodeStatus().WithCapacity(room).WithAllocatable(room).
		WithNodeInfo(applycorev1.NodeSystemInfo().
			WithArchitecture(runtime.GOARCH).WithOperatingSystem(runtime.GOOS).WithKubeletVersion(k.version))
	for _, c := range healthy() {
		s.WithConditions(applycorev1.NodeCondition().
			WithType(c.kind).WithStatus(c.status).WithReason(c.reason).WithMessage(fmt.Sprintf(c.format, k.cfg.Kind)).
			WithLastHeartbeatTime(now).WithLastTransitionTime(now))
	}
	for _, a := range addresses(vm) {
		s.WithAddresses(applycorev1.NodeAddress().WithType(a.Type).WithAddress(a.Address))
	}
	return s
}
