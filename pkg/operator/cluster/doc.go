// Package cluster keeps the Cluster that stands for a tenant, and the way to its
// API server.
//
// There are a Cluster, a NstanceCluster and a NstanceControlPlane of one name, and,
// unless an administrator says where the workload cluster is, a Secret with a
// kubeconfig, whose token is renewed before it ends.
//
// Whoever deletes the Cluster lets the tenant go from Kubernetes: its groups stay on
// their shards, and the Cluster is not made again before the operator starts anew.
// The Secret stays until the last pool and machine is gone, since Cluster API needs
// it until then: a finalizer on the NstanceCluster sees to that.
package cluster
