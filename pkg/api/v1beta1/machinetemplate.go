package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NstanceMachineTemplateSpec is the template's spec.
type NstanceMachineTemplateSpec struct {
	// +required
	Template NstanceMachineTemplateResource `json:"template,omitempty,omitzero"`
}

// NstanceMachineTemplateResource is the template of NstanceMachines.
type NstanceMachineTemplateResource struct {
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.idempotencyKey) && !has(self.instanceID) && !has(self.providerID) && !has(self.podNamespace)",message="idempotencyKey, instanceID, providerID and podNamespace can't be set in a template"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a template is immutable: create another template"
	Spec NstanceMachineSpec `json:"spec,omitempty,omitzero"`
}

// NstanceMachineTemplateStatus is what is known of machines created from the template.
//
// +kubebuilder:validation:MinProperties=1
type NstanceMachineTemplateStatus struct {
	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	Capacity Capacity `json:"capacity,omitempty"`
	// +optional
	NodeInfo NodeInfo `json:"nodeInfo,omitempty,omitzero"`
}

// NstanceMachineTemplate is a template of NstanceMachines, for MachineDeployments.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nstancemachinetemplates,scope=Namespaced,categories=cluster-api,shortName=nsmt
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta1"
// +kubebuilder:printcolumn:name="Group",type="string",JSONPath=".spec.template.spec.group"
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".spec.template.spec.instanceType"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type NstanceMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NstanceMachineTemplateSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status NstanceMachineTemplateStatus `json:"status,omitempty,omitzero"`
}

// NstanceMachineTemplateList is a list of NstanceMachineTemplates.
//
// +kubebuilder:object:root=true
type NstanceMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NstanceMachineTemplate `json:"items"`
}
