// Package cluster maintains the Cluster of a tenant and the kubeconfig for its API server.
//
// There are a Cluster, a NstanceCluster and a NstanceControlPlane of the same name, and,
// unless an administrator sets the workload cluster's endpoint, a Secret with a kubeconfig,
// whose token is renewed before it expires.
//
// Deleting the Cluster releases the tenant from Kubernetes: its groups stay on their shards,
// and the Cluster is not created again until the operator restarts. The Secret stays until the
// last pool and machine is gone, since Cluster API needs it until then; a finalizer on the
// NstanceCluster ensures that.
package cluster
