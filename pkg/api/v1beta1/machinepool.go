package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NstanceMachinePoolSpec is what is wanted of a group on all of its shards. How many
// instances there are is said by the MachinePool that owns it.
type NstanceMachinePoolSpec struct {
	// group is the group's name on each shard.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a pool's group can't change: make another pool"
	Group Name `json:"group,omitempty"`
	// shards are where its instances are, in the order in which they get those that
	// can't be shared equally.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Shards []Name `json:"shards,omitempty"`
	// template is the shards' template; unset: what each shard's own config says.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	Template string `json:"template,omitempty"`
	// +optional
	SubnetPool Name `json:"subnetPool,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:MinLength=1
	InstanceType string `json:"instanceType,omitempty"`
	// +optional
	Vars Vars `json:"vars,omitempty"`
	// +optional
	Rotation Rotation `json:"rotation,omitempty,omitzero"`
	// nodeLabels are set on the nodes.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// nodeTaints are set on the nodes.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=64
	NodeTaints []clusterv1.MachineTaint `json:"nodeTaints,omitempty"`
	// providerIDList names the nodes of all machines. It belongs to the controller.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	ProviderIDList []string `json:"providerIDList,omitempty"`
}

// NstanceMachinePoolStatus is what was seen of the group.
//
// +kubebuilder:validation:MinProperties=1
type NstanceMachinePoolStatus struct {
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`
	// ready says the same in the words of the contract before, which is what Cluster
	// API's core reads of a pool.
	// +optional
	Ready *bool `json:"ready,omitempty"`
	// replicas is the length of spec.providerIDList.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// isStatic: a shard's own config names the group, so template and subnetPool can
	// only be changed there.
	// +optional
	IsStatic *bool `json:"isStatic,omitempty"`
	// template is what the shards use.
	// +optional
	Template string `json:"template,omitempty"`
	// subnetPool is what the shards use.
	// +optional
	SubnetPool string `json:"subnetPool,omitempty"`
	// capacity is what a machine of the group has, so that one can be planned with
	// while there is none.
	// +optional
	Capacity Capacity `json:"capacity,omitempty"`
	// +optional
	NodeInfo NodeInfo `json:"nodeInfo,omitempty,omitzero"`
	// infrastructureMachineKind is the kind of the objects that stand for the pool's
	// machines.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	InfrastructureMachineKind string `json:"infrastructureMachineKind,omitempty"`
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
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.isStatic) || !oldSelf.status.isStatic || (has(self.spec.template) == has(oldSelf.spec.template) && (!has(self.spec.template) || self.spec.template == oldSelf.spec.template))",message="spec.template: the shard's static config names this group, so its template can only be changed there"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.isStatic) || !oldSelf.status.isStatic || (has(self.spec.subnetPool) == has(oldSelf.spec.subnetPool) && (!has(self.spec.subnetPool) || self.spec.subnetPool == oldSelf.spec.subnetPool))",message="spec.subnetPool: the shard's static config names this group, so its subnet pool can only be changed there"
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
