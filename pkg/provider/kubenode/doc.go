// Package kubenode keeps a Kubernetes Node for each machine of a provider whose
// machines run no kubelet, such as containers and processes of the development
// stack: so workloads can be scheduled, drained and lost without real machines.
//
// What there is of machines is what there is of Nodes. The keeper compares both every
// few seconds, and at once when a machine was made or removed, so it needs no memory
// and no leader: every server of a shard tells the same.
//
// It speaks to the API server over net/http, with the bodies that
// https://kubernetes.io/docs/reference/kubernetes-api describes, so that the server
// binary needs no Kubernetes library.
package kubenode
