// Package workload is the cluster in which nodes and pods are: the operator's own, or
// one elsewhere that a kubeconfig leads to.
package workload
