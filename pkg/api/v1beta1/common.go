package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Labels and annotations that users and controllers share.
const (
	LabelGroup = "nstance.dev/group" // on objects of a group
	LabelShard = "nstance.dev/shard" // on objects of a shard
	// LabelTenant on a Namespace of the workload cluster selects the tenant whose operator
	// serves its pods; the default is tenant default.
	LabelTenant = "nstance.dev/tenant"

	// AnnotationOnDemandGroup on a pod requests an on-demand instance of a group.
	AnnotationOnDemandGroup = "on-demand.nstance.dev/group"
	// AnnotationOnDemandInstanceType sets its type, if not the group's.
	AnnotationOnDemandInstanceType = "on-demand.nstance.dev/instance-type"

	// AnnotationOnDemandShard names the shard of its instance.
	AnnotationOnDemandShard = "on-demand.nstance.dev/shard"
	// AnnotationOnDemandKeep is how long its instance stays after the pod has ended, as a Go
	// duration; the default is 0.
	AnnotationOnDemandKeep = "on-demand.nstance.dev/keep"
	// GateMachine is the scheduling gate of a pod that is to run on its own instance only. The
	// operator lifts it once the pod selects the instance's Node.
	GateMachine = "nstance.dev/machine"

	// AnnotationShardChosen on a NstanceMachine is the shard, if the operator chose it. After a
	// failed creation it may choose another.
	AnnotationShardChosen = "nstance.dev/shard-chosen"

	// LabelPodUID is set on objects created for a pod, with the UID of the pod that has them.
	LabelPodUID = "on-demand.nstance.dev/pod-uid"
	// LabelNodePodUID is the key of the label and taint of a Node that is for one pod, with its
	// UID. Of such keys the API server lets no kubelet set a label on its own Node.
	LabelNodePodUID = "nstance.dev.node-restriction.kubernetes.io/pod-uid"

	// Finalizer is set on objects that need cleanup at a shard.
	Finalizer = "nstance.dev/finalizer"
)

// Condition types.
const (
	ConditionReady          = "Ready"
	ConditionPaused         = "Paused"
	ConditionShardReachable = "ShardReachable"
	ConditionConfigValid    = "ConfigValid"
	ConditionCreatesFailing = "CreatesFailing"
	// ConditionTerminating of a machine: the provider is ending it, and when.
	ConditionTerminating = "Terminating"
	// ConditionNodeFound of a draining machine: which Node is its is known; if not, none is
	// drained.
	ConditionNodeFound = "NodeFound"
	// ConditionDrainBlocked of a draining machine: pods or volumes are in the way.
	ConditionDrainBlocked = "DrainBlocked"
)

// Name is the ID of a group, a shard or a subnet pool.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^[a-z0-9]+(-[a-z0-9]+)*$`
type Name string

// InstanceID is the ID of an instance: its kind and a UUID, 29 characters.
//
// +kubebuilder:validation:MaxLength=29
// +kubebuilder:validation:Pattern=`^[a-z]{3}[0-9a-hjkmnp-tv-z]{26}$`
type InstanceID string

// Vars are variables for templates. They are merged over the group's.
//
// +kubebuilder:validation:MaxProperties=1000
type Vars map[string]apiextensionsv1.JSON

// Rotation limits the surge: the instances beyond the size while working ones are replaced.
type Rotation struct {
	// maxSurge is a number of instances, or a percentage of the size.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]{0,3}|10000|([1-9][0-9]?|100)%)$`
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}

// OnDemand selects the pods that may get instances of a group, and limits its on-demand
// instances on each shard.
//
// +kubebuilder:validation:XValidation:rule="has(self.namespaces) || has(self.namespaceLabels)",message="namespaces: required, unless namespaceLabels is given: want the names of Namespaces, or * for all"
// +kubebuilder:validation:XValidation:rule="!has(self.maxPerNamespace) || self.maxPerNamespace <= self.max",message="maxPerNamespace: want at most max"
type OnDemand struct {
	// namespaces are the names of the allowed Namespaces; "*" allows all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^(\*|[a-z0-9]([a-z0-9-]*[a-z0-9])?)$`
	Namespaces []string `json:"namespaces,omitempty"`
	// namespaceLabels also allow the Namespaces that have all of these labels.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=100
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	// instanceTypes are the types that pods may request besides the group's own.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	InstanceTypes []string `json:"instanceTypes,omitempty"`
	// max is the maximum number of the group's on-demand instances on a shard.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Max int32 `json:"max,omitempty"`
	// maxPerNamespace is the maximum for the pods of one Namespace; the default is max.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxPerNamespace int32 `json:"maxPerNamespace,omitempty"`
}

// NodeInfo describes a Node before it exists.
//
// +kubebuilder:validation:MinProperties=1
type NodeInfo struct {
	// architecture is the machines' CPU architecture.
	// +optional
	// +kubebuilder:validation:Enum=amd64;arm64
	Architecture string `json:"architecture,omitempty"`
	// operatingSystem is the machines' operating system.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	OperatingSystem string `json:"operatingSystem,omitempty"`
}

// Initialization tells Cluster API whether the infrastructure is provisioned.
//
// +kubebuilder:validation:MinProperties=1
type Initialization struct {
	// provisioned is true once the infrastructure is ready to be used, and stays so.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// Capacity is the resources of an instance type.
type Capacity = corev1.ResourceList
