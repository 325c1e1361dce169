// Package workload accesses the cluster of the nodes and pods: the operator's own, or a remote
// one by a kubeconfig.
package workload
