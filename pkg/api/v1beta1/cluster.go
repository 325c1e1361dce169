package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NstanceClusterSpec is what is wanted of the cluster's infrastructure.
type NstanceClusterSpec struct {
	// controlPlaneEndpoint is where the workload cluster's API server is.
	// +optional
	ControlPlaneEndpoint clusterv1.APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`
}

// NstanceClusterStatus is what was seen of it.
//
// +kubebuilder:validation:MinProperties=1
type NstanceClusterStatus struct {
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`
	// ready says the same in the words of the contract before.
	// +optional
	Ready *bool `json:"ready,omitempty"`
	// failureDomains are the shards.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`
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

// NstanceControlPlaneSpec is empty: the control plane is not made here.
type NstanceControlPlaneSpec struct{}

// ControlPlaneInitialization tells Cluster API that the API server answers.
//
// +kubebuilder:validation:MinProperties=1
type ControlPlaneInitialization struct {
	// +optional
	ControlPlaneInitialized *bool `json:"controlPlaneInitialized,omitempty"`
}

// NstanceControlPlaneStatus is what was seen of the control plane.
//
// +kubebuilder:validation:MinProperties=1
type NstanceControlPlaneStatus struct {
	// +optional
	Initialization ControlPlaneInitialization `json:"initialization,omitempty,omitzero"`
	// externalManagedControlPlane: its machines are none of Cluster API's.
	// +optional
	ExternalManagedControlPlane *bool `json:"externalManagedControlPlane,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NstanceControlPlane stands for a control plane that somebody else runs. Without
// one Cluster API neither drains nodes nor deletes them.
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
