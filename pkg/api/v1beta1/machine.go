package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NstanceMachineSpec is what is wanted of one instance. Where it is to be, with which
// key it is asked for, and which it then is are written down one after another, each
// before the call that needs it, and never changed: so an instance is asked for once
// whatever happens in between.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.shard) || (has(self.shard) && self.shard == oldSelf.shard)",message="shard: it is set once"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.idempotencyKey) || (has(self.idempotencyKey) && self.idempotencyKey == oldSelf.idempotencyKey)",message="idempotencyKey: it is set once"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.instanceID) || (has(self.instanceID) && self.instanceID == oldSelf.instanceID)",message="instanceID: it is set once"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.providerID) || (has(self.providerID) && self.providerID == oldSelf.providerID)",message="providerID: it is set once"
type NstanceMachineSpec struct {
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the group can't change"
	Group Name `json:"group,omitempty"`
	// +optional
	Shard Name `json:"shard,omitempty"`
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	// instanceID adopts an instance. One that has an id is never created.
	// +optional
	InstanceID InstanceID `json:"instanceID,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:MinLength=1
	InstanceType string `json:"instanceType,omitempty"`
	// +optional
	Vars Vars `json:"vars,omitempty"`
	// providerID is that of the node.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`
}

// NstanceMachineStatus is what was seen of the instance.
//
// +kubebuilder:validation:MinProperties=1
type NstanceMachineStatus struct {
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`
	// phase is the instance's.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Phase string `json:"phase,omitempty"`
	// failureDomain is the shard.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`
	// +optional
	NodeInfo NodeInfo `json:"nodeInfo,omitempty,omitzero"`
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NstanceMachine is the infrastructure of a Machine: one instance, of a pool or made
// for itself.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nstancemachines,scope=Namespaced,categories=cluster-api,shortName=nsm
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta1"
// +kubebuilder:printcolumn:name="Group",type="string",JSONPath=".spec.group"
// +kubebuilder:printcolumn:name="Shard",type="string",JSONPath=".spec.shard"
// +kubebuilder:printcolumn:name="Instance",type="string",JSONPath=".spec.instanceID"
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Provider ID",type="string",JSONPath=".spec.providerID",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type NstanceMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NstanceMachineSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status NstanceMachineStatus `json:"status,omitempty,omitzero"`
}

// NstanceMachineList is a list of NstanceMachines.
//
// +kubebuilder:object:root=true
type NstanceMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NstanceMachine `json:"items"`
}
