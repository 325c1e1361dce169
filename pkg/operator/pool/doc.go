// Package pool keeps NstanceMachinePools: a part on each shard (NstanceShardGroup), the
// list of their machines' ids, an NstanceMachine for each machine, and the labels and
// taints of their nodes.
//
// Two things are never got wrong for speed. An id leaves the list only when its own
// shard, telling everything, does not tell of it any more; since Cluster API deletes
// the Node of an id that is missing. And who leaves when a pool shrinks is decided on
// what the API server says, not a cache: those that are named by annotation, then those
// whose nodes the Cluster Autoscaler has tainted. While fewer are named than leave, a
// short grace passes first, since the number may come before the name. A name that
// comes after the grace takes nothing; it is the first the next time.
package pool
