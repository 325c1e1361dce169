package ondemand

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	// LabelPodUID is set on objects created for a pod.
	LabelPodUID = v1beta1.LabelPodUID
	// AnnotationPod is the pod's namespace and name.
	AnnotationPod = "on-demand.nstance.dev/pod"
)

// objectName returns the name of the objects of a pod: the pod's name for readability, and a
// hash for uniqueness.
//
// attempt is 0 unless an earlier name is taken by a machine that was handed over to another pod.
func objectName(pod metav1.Object, attempt int) string {
	const most = 63
	of := pod.GetNamespace() + "/" + pod.GetName() + "/" + string(pod.GetUID())
	if attempt > 0 {
		of += "/" + strconv.Itoa(attempt)
	}
	sum := sha256.Sum256([]byte(of))
	tail := "-" + hex.EncodeToString(sum[:6])
	head := "od-" + strings.ReplaceAll(pod.GetName(), ".", "-")
	return strings.TrimRight(head[:min(len(head), most-len(tail))], "-") + tail
}

// meta returns the metadata of a pod's objects.
func meta(name string, pod metav1.Object, a ask, cluster types.NamespacedName) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: cluster.Namespace, Name: name,
		Labels: map[string]string{
			clusterv1.ClusterNameLabel: cluster.Name,
			v1beta1.LabelGroup:         a.group,
			LabelPodUID:                string(pod.GetUID()),
		},
		Annotations: map[string]string{AnnotationPod: pod.GetNamespace() + "/" + pod.GetName()},
	}
}

// infrastructure returns the NstanceMachine, with all that its controller needs to request the
// instance without a write before.
func infrastructure(m metav1.ObjectMeta, pod metav1.Object, a ask, shard, key string) *v1beta1.NstanceMachine {
	m.Finalizers = []string{v1beta1.Finalizer}
	return &v1beta1.NstanceMachine{
		ObjectMeta: m,
		Spec: v1beta1.NstanceMachineSpec{
			Group: v1beta1.Name(a.group), InstanceType: a.instanceType, Shard: v1beta1.Name(shard), PodNamespace: pod.GetNamespace(),
			IdempotencyKey: key,
		},
	}
}

// drainUnknown is the limit for a group whose shard does not report its drain timeout.
const drainUnknown = 5 * time.Minute

// coreTimeout bounds Cluster API's own drain of a Machine, and its wait for volumes, which have
// no limit otherwise, nor with 0: a pod of another owner, with a budget, could hold the machine
// for ever. It is the group's drain timeout; the shard drains after that, too.
func coreTimeout(g *nstancev1.GroupStatus) *int32 {
	limit := drainUnknown
	if g.GetDrainTimeout() != nil {
		limit = g.GetDrainTimeout().AsDuration()
	}
	return new(max(1, int32((limit+time.Second-1)/time.Second)))
}

// machine returns the Machine. It has no bootstrap data, since a shard provides what its
// machines need to join; the empty name tells Cluster API so.
func machine(m metav1.ObjectMeta, cluster types.NamespacedName, g *nstancev1.GroupStatus) *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: m,
		Spec: clusterv1.MachineSpec{
			ClusterName: cluster.Name,
			Deletion: clusterv1.MachineDeletionSpec{
				NodeDrainTimeoutSeconds: coreTimeout(g), NodeVolumeDetachTimeoutSeconds: coreTimeout(g),
			},
			Bootstrap: clusterv1.Bootstrap{DataSecretName: new("")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: v1beta1.Group, Kind: "NstanceMachine", Name: m.Name,
			},
		},
	}
}

// podOf returns the pod that an object was created for.
func podOf(o metav1.Object) (key types.NamespacedName, ok bool) {
	namespace, name, found := strings.Cut(o.GetAnnotations()[AnnotationPod], "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, found && o.GetLabels()[LabelPodUID] != ""
}
