// Package bootstrap imports existing groups of the shards: it creates a pool for each.
//
// Nothing is created before every shard has reported all its groups: a pool has to name all
// shards of its group, and to count all instances. A group that already has a pool in
// Kubernetes is left alone; from then on Kubernetes defines it.
//
// A group may outlive its pool: while its shard's own config names it, or while it is being
// emptied. Such a group is not imported again until the operator restarts, since its pool has
// just been deleted. A group that was gone from every shard and returns counts as a new group,
// and is imported.
package bootstrap
