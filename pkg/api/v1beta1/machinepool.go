package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NstanceMachinePoolSpec is the desired state of a group on all of its shards. The number of
// instances is set in the MachinePool that owns it.
type NstanceMachinePoolSpec struct {
	// group is the group's name on each shard.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the group is immutable: create another pool"
	Group Name `json:"group,omitempty"`
	// shards are the shards of its instances. Earlier ones get the instances that can't be
	// distributed equally.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Shards []Name `json:"shards,omitempty"`
	// template is the name of the shards' template; unset: as in each shard's own config.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	Template string `json:"template,omitempty"`
	// subnetPool is the name of the shards' subnet pool; unset: as in each shard's own config.
	// +optional
	SubnetPool Name `json:"subnetPool,omitempty"`
	// instanceType is the provider's instance type; unset: as in each shard's own config.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:MinLength=1
	InstanceType string `json:"instanceType,omitempty"`
	// +optional
	Vars Vars `json:"vars,omitempty"`
	// +optional
	Rotation Rotation `json:"rotation,omitempty,omitzero"`
	// onDemand is the policy for pods; unset: as in each shard's own config. For a group of a
	// shard's own config it can only be set there.
	// +optional
	OnDemand *OnDemand `json:"onDemand,omitempty"`
	// nodeLabels are set on the pool's nodes.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// nodeTaints are set on the pool's nodes.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=64
	NodeTaints []clusterv1.MachineTaint `json:"nodeTaints,omitempty"`
	// providerIDList has the provider IDs of all machines. It is set by the controller.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	ProviderIDList []string `json:"providerIDList,omitempty"`
}

// NstanceMachinePoolStatus is the observed state of the group.
//
// +kubebuilder:validation:MinProperties=1
type NstanceMachinePoolStatus struct {
	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`
	// ready is the same in the terms of the previous contract, which Cluster API's core reads
	// for pools.
	// +optional
	Ready *bool `json:"ready,omitempty"`
	// replicas is the length of spec.providerIDList.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// isStatic is true if a shard's own config has the group, so that template and subnetPool
	// can only be changed there.
	// +optional
	IsStatic *bool `json:"isStatic,omitempty"`
	// template is the template that the shards use.
	// +optional
	Template string `json:"template,omitempty"`
	// subnetPool is the subnet pool that the shards use.
	// +optional
	SubnetPool string `json:"subnetPool,omitempty"`
	// capacity is the resources of a machine of the group, for scaling from zero.
	// +optional
	Capacity Capacity `json:"capacity,omitempty"`
	// +optional
	NodeInfo NodeInfo `json:"nodeInfo,omitempty,omitzero"`
	// infrastructureMachineKind is the kind of the pool's machines.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	InfrastructureMachineKind string `json:"infrastructureMachineKind,omitempty"`
	// conditions are the conditions of the pool.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NstanceMachinePool is the infrastructure of a MachinePool: a group of instances on
// one or more shards.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nstancemachinepools,scope=Namespaced,categories=cluster-api,shortName=nsmp
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta1"
// +kubebuilder:printcolumn:name="Group",type="string",JSONPath=".spec.group"
// +kubebuilder:printcolumn:name="Shards",type="string",JSONPath=".spec.shards"
// +kubebuilder:printcolumn:name="Replicas",type="integer",JSONPath=".status.replicas"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".spec.instanceType",priority=1
// +kubebuilder:printcolumn:name="Static",type="boolean",JSONPath=".status.isStatic",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.isStatic) || !oldSelf.status.isStatic || (has(self.spec.template) == has(oldSelf.spec.template) && (!has(self.spec.template) || self.spec.template == oldSelf.spec.template))",message="spec.template: the group is in the shard's static config: change its template there"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.isStatic) || !oldSelf.status.isStatic || (has(self.spec.subnetPool) == has(oldSelf.spec.subnetPool) && (!has(self.spec.subnetPool) || self.spec.subnetPool == oldSelf.spec.subnetPool))",message="spec.subnetPool: the group is in the shard's static config: change its subnet pool there"
type NstanceMachinePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NstanceMachinePoolSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status NstanceMachinePoolStatus `json:"status,omitempty,omitzero"`
}

// NstanceMachinePoolList is a list of NstanceMachinePools.
//
// +kubebuilder:object:root=true
type NstanceMachinePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NstanceMachinePool `json:"items"`
}
