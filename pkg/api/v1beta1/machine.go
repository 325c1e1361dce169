package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NstanceMachineSpec is the desired state of one instance. Its shard, its idempotency key and
// its ID are stored one after another, each before the call that needs it, and don't change
// unless the creation has failed: so an instance is created only once, even after a crash.
//
// +kubebuilder:validation:XValidation:rule="has(oldSelf.podNamespace) == has(self.podNamespace) && (!has(self.podNamespace) || self.podNamespace == oldSelf.podNamespace)",message="podNamespace: immutable"
type NstanceMachineSpec struct {
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the group is immutable"
	Group Name `json:"group,omitempty"`
	// +optional
	Shard Name `json:"shard,omitempty"`
	// idempotencyKey is the key with which the operator creates the instance; it sets the field.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	// instanceID adopts an existing instance, which is then never created.
	// +optional
	InstanceID InstanceID `json:"instanceID,omitempty"`
	// instanceType is the provider's instance type; unset: the group's own.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:MinLength=1
	InstanceType string `json:"instanceType,omitempty"`
	// +optional
	Vars Vars `json:"vars,omitempty"`
	// podNamespace is the Namespace of the pod for which the instance is; unset if for none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	PodNamespace string `json:"podNamespace,omitempty"`
	// providerID is the node's provider ID.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`
}

// Creation is the state of a creation that has failed and is repeated.
//
// +kubebuilder:validation:MinProperties=1
type Creation struct {
	// failures is the number of failed attempts in a row.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Failures int32 `json:"failures,omitempty"`
	// reason is why the last attempt failed, as one word.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// message is why it failed, in the words of the shard or the provider.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`
	// failureTime is when the failure was noticed.
	// +optional
	FailureTime *metav1.Time `json:"failureTime,omitempty"`
	// retryTime is when the next attempt is due; unset while one is under way.
	// +optional
	RetryTime *metav1.Time `json:"retryTime,omitempty"`
	// instanceID is the instance of the last attempt; unset if the shard refused the request.
	// +optional
	InstanceID InstanceID `json:"instanceID,omitempty"`
	// groupVersion is the version of the group's definition at that time. Another one makes a
	// refused attempt due.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	GroupVersion string `json:"groupVersion,omitempty"`
	// observedGeneration is the generation of the spec at that time, likewise.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Reasons of a failed creation.
const (
	CreationGroupNotFound = "GroupNotFound"
	CreationNotAllowed    = "NotAllowed"
	CreationInvalid       = "Invalid"
	CreationNoCapacity    = "NoCapacity"
	CreationRefused       = "Refused"       // by the provider
	CreationTimedOut      = "TimedOut"      // no machine was made in time
	CreationNotRegistered = "NotRegistered" // its agent did not register in time
	CreationInstanceEnded = "InstanceEnded" // before it registered
)

// NstanceMachineStatus is the observed state of the instance.
//
// +kubebuilder:validation:MinProperties=1
type NstanceMachineStatus struct {
	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`
	// phase is the instance's phase.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Phase string `json:"phase,omitempty"`
	// failureDomain is the shard.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`
	// addresses are the machine's host name and IP addresses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`
	// +optional
	NodeInfo NodeInfo `json:"nodeInfo,omitempty,omitzero"`
	// creation is set if the instance could not be created, until it has been.
	// +optional
	Creation *Creation `json:"creation,omitempty"`
	// nodeName is the name of the machine's Node when it was last found for a drain, unless the
	// Machine's status names it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`
	// conditions are the conditions of the machine.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NstanceMachine is the infrastructure of a Machine: one instance, of a pool or standalone.
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
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec.shard) || (has(self.spec.shard) && self.spec.shard == oldSelf.spec.shard) || (has(oldSelf.status) && has(oldSelf.status.creation) && has(oldSelf.status.creation.retryTime))",message="spec.shard: immutable once set, unless the creation has failed (status.creation.retryTime)"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec.idempotencyKey) || (has(self.spec.idempotencyKey) && self.spec.idempotencyKey == oldSelf.spec.idempotencyKey) || (has(oldSelf.status) && has(oldSelf.status.creation) && has(oldSelf.status.creation.retryTime))",message="spec.idempotencyKey: immutable once set, unless the creation has failed (status.creation.retryTime)"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec.instanceID) || (has(self.spec.instanceID) && self.spec.instanceID == oldSelf.spec.instanceID) || (has(oldSelf.status) && has(oldSelf.status.creation) && has(oldSelf.status.creation.retryTime))",message="spec.instanceID: immutable once set, unless the creation has failed (status.creation.retryTime)"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec.providerID) || (has(self.spec.providerID) && self.spec.providerID == oldSelf.spec.providerID) || (has(oldSelf.status) && has(oldSelf.status.creation) && has(oldSelf.status.creation.retryTime))",message="spec.providerID: immutable once set, unless the creation has failed (status.creation.retryTime)"
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
