// Package pool reconciles NstanceMachinePools: an NstanceShardGroup (the pool's part) on each
// shard, the list of the machines' provider IDs, an NstanceMachine for each machine, and the
// labels and taints of their nodes.
//
// Two invariants come before speed. A provider ID leaves the list only when its own shard is
// synced and does not report it any more, since Cluster API deletes the Node of a missing ID.
// And which instances a shrinking pool removes is decided from the API server, not from a
// cache: first those named by annotation, then those whose nodes the Cluster Autoscaler has
// tainted. If too few are named, a short grace period passes first, since the size may be
// lowered before the names are set. A name that comes after the grace period removes nothing
// now; it counts first the next time.
package pool
