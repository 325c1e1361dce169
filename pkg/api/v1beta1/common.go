package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The labels and annotations that users and controllers share.
const (
	LabelGroup = "nstance.dev/group" // on what belongs to a group
	LabelShard = "nstance.dev/shard" // on what belongs to a shard

	// AnnotationOnDemandGroup on a pod asks for an instance of its own, from a group.
	AnnotationOnDemandGroup = "on-demand.nstance.dev/group"
	// AnnotationOnDemandInstanceType says of which type, if not the group's.
	AnnotationOnDemandInstanceType = "on-demand.nstance.dev/instance-type"

	// Finalizer holds what has to be undone at a shard first.
	Finalizer = "nstance.dev/finalizer"
)

// The types of conditions.
const (
	ConditionReady          = "Ready"
	ConditionPaused         = "Paused"
	ConditionShardReachable = "ShardReachable"
	ConditionConfigValid    = "ConfigValid"
	ConditionCreatesFailing = "CreatesFailing"
	// ConditionTerminating of a machine: the provider takes it back, and when.
	ConditionTerminating = "Terminating"
)

// Name is the id of a group, a shard or a subnet pool.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^[a-z0-9]+(-[a-z0-9]+)*$`
type Name string

// InstanceID is the id of an instance: its kind and a UUID, 29 characters.
//
// +kubebuilder:validation:MaxLength=29
// +kubebuilder:validation:Pattern=`^[a-z]{3}[0-9a-hjkmnp-tv-z]{26}$`
type InstanceID string

// Vars are values that templates print. They are merged over the group's.
//
// +kubebuilder:validation:MaxProperties=1000
type Vars map[string]apiextensionsv1.JSON

// Rotation bounds how many instances there are beyond the size while those that
// work are replaced.
type Rotation struct {
	// maxSurge is a count, or a share of the size in percent.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]{0,3}|10000|([1-9][0-9]?|100)%)$`
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}

// NodeInfo is what of a Node can be known before there is one.
//
// +kubebuilder:validation:MinProperties=1
type NodeInfo struct {
	// +optional
	// +kubebuilder:validation:Enum=amd64;arm64
	Architecture string `json:"architecture,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=32
	OperatingSystem string `json:"operatingSystem,omitempty"`
}

// Initialization tells Cluster API that there is something to work with.
//
// +kubebuilder:validation:MinProperties=1
type Initialization struct {
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// Capacity is what a machine of an instance type has.
type Capacity = corev1.ResourceList
