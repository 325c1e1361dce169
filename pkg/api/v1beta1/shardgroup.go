package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NstanceShardGroupSpec is the desired state of a group on one shard.
type NstanceShardGroupSpec struct {
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the group is immutable"
	Group Name `json:"group,omitempty"`
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the shard is immutable"
	Shard Name `json:"shard,omitempty"`
	// size is how many instances the group has on the shard.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Size *int32 `json:"size,omitempty"`
	// remove names the instances to remove for this size.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10000
	Remove []InstanceID `json:"remove,omitempty"`
	// template is the name of the shard's template.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	Template string `json:"template,omitempty"`
	// subnetPool is the name of the shard's subnet pool.
	// +optional
	SubnetPool Name `json:"subnetPool,omitempty"`
	// instanceType is the provider's instance type.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:MinLength=1
	InstanceType string `json:"instanceType,omitempty"`
	// vars are the values that the group's template gets.
	// +optional
	Vars Vars `json:"vars,omitempty"`
	// +optional
	Rotation Rotation `json:"rotation,omitempty,omitzero"`
	// +optional
	OnDemand *OnDemand `json:"onDemand,omitempty"`
}

// ShardGroupConfig is a group as reported by its shard.
type ShardGroupConfig struct {
	// template is the name of the shard's template.
	// +optional
	Template string `json:"template,omitempty"`
	// subnetPool is the name of the shard's subnet pool.
	// +optional
	SubnetPool string `json:"subnetPool,omitempty"`
	// instanceType is the provider's instance type.
	// +optional
	InstanceType string `json:"instanceType,omitempty"`
	// vars are the values that the group's template gets.
	// +optional
	Vars Vars `json:"vars,omitempty"`
	// size is how many instances the group has on the shard.
	// +optional
	Size *int32 `json:"size,omitempty"`
	// staticSize is the size in the shard's own config.
	// +optional
	StaticSize *int32 `json:"staticSize,omitempty"`
	// etag changes with every change of the group.
	// +optional
	ETag string `json:"etag,omitempty"`
}

// NstanceShardGroupStatus is the observed state of the group on its shard.
//
// +kubebuilder:validation:MinProperties=1
type NstanceShardGroupStatus struct {
	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// isStatic is true if the shard's own config has the group.
	// +optional
	IsStatic *bool `json:"isStatic,omitempty"`
	// config is the group as its shard reports it.
	// +optional
	Config ShardGroupConfig `json:"config,omitempty,omitzero"`
	// actualSize is the number of instances that run, have reported, have their files, and are
	// not being removed.
	// +optional
	ActualSize *int32 `json:"actualSize,omitempty"`
	// upToDateSize is how many of those have the current definition.
	// +optional
	UpToDateSize *int32 `json:"upToDateSize,omitempty"`
	// lastSyncTime is when the shard last reported the group.
	// +optional
	LastSyncTime *metav1.Time `json:"lastSyncTime,omitempty"`
	// conditions are the conditions of the group on its shard.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NstanceShardGroup is a pool's part on one shard. It is created by its pool and named after
// group and shard.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nstanceshardgroups,scope=Namespaced,categories=cluster-api,shortName=nssg
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta1"
// +kubebuilder:printcolumn:name="Group",type="string",JSONPath=".spec.group"
// +kubebuilder:printcolumn:name="Shard",type="string",JSONPath=".spec.shard"
// +kubebuilder:printcolumn:name="Size",type="integer",JSONPath=".spec.size"
// +kubebuilder:printcolumn:name="Actual",type="integer",JSONPath=".status.actualSize"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Reachable",type="string",JSONPath=".status.conditions[?(@.type=='ShardReachable')].status"
// +kubebuilder:printcolumn:name="Failing",type="string",JSONPath=".status.conditions[?(@.type=='CreatesFailing')].status",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.group + '--' + self.spec.shard",message="metadata.name: want the group's name, two hyphens, and the shard's"
type NstanceShardGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NstanceShardGroupSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status NstanceShardGroupStatus `json:"status,omitempty,omitzero"`
}

// NstanceShardGroupList is a list of NstanceShardGroups.
//
// +kubebuilder:object:root=true
type NstanceShardGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NstanceShardGroup `json:"items"`
}
