// Package v1beta1 holds the kinds with which Nstance is a Cluster API
// infrastructure provider: types only. Their schemas, validation included, are
// generated into config/crd from the comments here, so there is no webhook.
//
// The contract that they fulfil is Cluster API's v1beta2. Where core 1.14 still
// reads a field of the contract before, both are there; the field's comment says so.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta1
