// Package v1beta1 has the API types with which Nstance is a Cluster API infrastructure
// provider. Their schemas, validation included, are generated into config/crd from the
// comments here, so there is no webhook.
//
// They implement Cluster API's contract v1beta2. Where core 1.14 still reads a field of the
// previous contract, both are there; the field's comment says so.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta1
