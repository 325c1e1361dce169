package ondemand

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

const (
	// LabelPodUID is on what was made for a pod, and names it.
	LabelPodUID = "on-demand.nstance.dev/pod-uid"
	// AnnotationPod is its namespace and its name.
	AnnotationPod = "on-demand.nstance.dev/pod"
)

// objectName is that of everything that is made for a pod: for people the pod's name,
// and for uniqueness a sum of what tells it from all other pods.
func objectName(pod metav1.Object) string {
	const most = 63
	sum := sha256.Sum256([]byte(pod.GetNamespace() + "/" + pod.GetName() + "/" + string(pod.GetUID())))
	tail := "-" + hex.EncodeToString(sum[:6])
	head := "od-" + strings.ReplaceAll(pod.GetName(), ".", "-")
	return strings.TrimRight(head[:min(len(head), most-len(tail))], "-") + tail
}

// meta is that of what is made for a pod.
func meta(pod metav1.Object, a ask, cluster types.NamespacedName) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: cluster.Namespace, Name: objectName(pod),
		Labels: map[string]string{
			clusterv1.ClusterNameLabel: cluster.Name,
			v1beta1.LabelGroup:         a.group,
			LabelPodUID:                string(pod.GetUID()),
		},
		Annotations: map[string]string{AnnotationPod: pod.GetNamespace() + "/" + pod.GetName()},
	}
}

func infrastructure(pod metav1.Object, a ask, cluster types.NamespacedName) *v1beta1.NstanceMachine {
	return &v1beta1.NstanceMachine{
		ObjectMeta: meta(pod, a, cluster),
		Spec:       v1beta1.NstanceMachineSpec{Group: v1beta1.Name(a.group), InstanceType: a.instanceType},
	}
}

// machine has no bootstrap data: a shard gives its machines what they need to join. The
// empty name says so to Cluster API.
func machine(pod metav1.Object, a ask, cluster types.NamespacedName) *clusterv1.Machine {
	m := meta(pod, a, cluster)
	return &clusterv1.Machine{
		ObjectMeta: m,
		Spec: clusterv1.MachineSpec{
			ClusterName: cluster.Name,
			Bootstrap:   clusterv1.Bootstrap{DataSecretName: new("")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: v1beta1.Group, Kind: "NstanceMachine", Name: m.Name,
			},
		},
	}
}

// podOf is the pod that an object was made for.
func podOf(o metav1.Object) (key types.NamespacedName, ok bool) {
	namespace, name, found := strings.Cut(o.GetAnnotations()[AnnotationPod], "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, found && o.GetLabels()[LabelPodUID] != ""
}
