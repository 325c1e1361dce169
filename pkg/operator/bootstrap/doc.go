// Package bootstrap makes pools of the groups that the shards have already.
//
// Nothing is made before every shard has told all its groups: a pool has to name all
// shards on which its group is, and to count all instances. A group that Kubernetes
// has a pool for is left alone; from then on Kubernetes says what there is.
//
// A group may outlive its pool: when its shard's own config names it, or while it is
// being emptied. Such a group is not imported again before the operator starts anew,
// since somebody has just deleted its pool. One that was gone from every shard and
// comes back is another group, and is imported.
package bootstrap
