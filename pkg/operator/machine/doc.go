// Package machine makes the infrastructure of one Machine: an instance of a shard.
//
// A NstanceMachine is one of two sorts. An instance of its own (a MachineDeployment's,
// a pod's, or made by hand) is asked for here, in steps that are each written down
// before the next one: shard and idempotency key, then the call, then the instance's
// id, then the id of its node. Whoever comes to it after a crash repeats the call with
// the same key, and the shard answers with the same instance. A pool's instance is
// there already; its NstanceMachine comes with the id and is only shown.
//
// What an id names is adopted and never made again. An instance counts as gone only
// when its shard has said so: by a tombstone, or by not knowing it while the shard is
// synced.
//
// Each step has a file: place, create, observe, replace, gone, delete.
package machine
