package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NstanceClusterSpec is the desired state of the cluster's infrastructure.
type NstanceClusterSpec struct {
	// controlPlaneEndpoint is the address of the workload cluster's API server.
	// +optional
	ControlPlaneEndpoint clusterv1.APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`
}

// NstanceClusterStatus is the observed state of the cluster's infrastructure.
//
// +kubebuilder:validation:MinProperties=1
type NstanceClusterStatus struct {
	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`
	// ready is the same in the terms of the previous contract.
	// +optional
	Ready *bool `json:"ready,omitempty"`
	// failureDomains are the shards.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`
	// conditions are the conditions of the cluster, or of its control plane.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NstanceCluster is the infrastructure of a Cluster: the shards of one tenant.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nstanceclusters,scope=Namespaced,categories=cluster-api,shortName=nsc
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta1"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']"
// +kubebuilder:printcolumn:name="Provisioned",type="boolean",JSONPath=".status.initialization.provisioned"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Endpoint",type="string",JSONPath=".spec.controlPlaneEndpoint.host",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type NstanceCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec NstanceClusterSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status NstanceClusterStatus `json:"status,omitempty,omitzero"`
}

// NstanceClusterList is a list of NstanceClusters.
//
// +kubebuilder:object:root=true
type NstanceClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NstanceCluster `json:"items"`
}

// NstanceControlPlaneSpec is empty: the control plane is not managed here.
type NstanceControlPlaneSpec struct{}

// ControlPlaneInitialization tells Cluster API whether the API server is available.
//
// +kubebuilder:validation:MinProperties=1
type ControlPlaneInitialization struct {
	// controlPlaneInitialized is true: the control plane accepts requests.
	// +optional
	ControlPlaneInitialized *bool `json:"controlPlaneInitialized,omitempty"`
}

// NstanceControlPlaneStatus is the observed state of the control plane.
//
// +kubebuilder:validation:MinProperties=1
type NstanceControlPlaneStatus struct {
	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	Initialization ControlPlaneInitialization `json:"initialization,omitempty,omitzero"`
	// externalManagedControlPlane is true: Cluster API does not manage the control plane's
	// machines.
	// +optional
	ExternalManagedControlPlane *bool `json:"externalManagedControlPlane,omitempty"`
	// conditions are the conditions of the cluster, or of its control plane.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NstanceControlPlane represents a control plane that Nstance does not run. Without it Cluster
// API would neither drain nor delete nodes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nstancecontrolplanes,scope=Namespaced,categories=cluster-api,shortName=nscp
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta1"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']"
// +kubebuilder:printcolumn:name="Initialized",type="boolean",JSONPath=".status.initialization.controlPlaneInitialized"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type NstanceControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec NstanceControlPlaneSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status NstanceControlPlaneStatus `json:"status,omitempty,omitzero"`
}

// NstanceControlPlaneList is a list of NstanceControlPlanes.
//
// +kubebuilder:object:root=true
type NstanceControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NstanceControlPlane `json:"items"`
}
