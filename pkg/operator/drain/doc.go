// Package drain empties nodes before their instances are removed. For each instance that a
// shard drains, it cordons the Node and evicts the pods, as their disruption budgets allow;
// when none is left it tells the shard, which removes the instance. Neither the shard nor this
// package waits longer than the drain's delete_at.
package drain
