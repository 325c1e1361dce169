// Package machine reconciles NstanceMachines, the infrastructure of Machines: each is an
// instance of a shard.
//
// There are two sorts. A standalone instance (of a MachineDeployment, for a pod, or created by
// hand) is requested here, in steps that are each stored before the next: shard and
// idempotency key, then the call, then the instance's ID, then its node's provider ID. After a
// crash the call is repeated with the same key, and the shard returns the same instance. A
// pool's instance exists already; its NstanceMachine is created with the ID and only shows it.
//
// An instance that is named by ID is adopted and never created again. It counts as gone only
// when its shard says so: by a tombstone, or by not knowing it while the shard is synced.
//
// An instance that ends before it registers is a failed attempt: the same objects try again,
// after a wait that is kept in their status, and with the same key where the shard lets that
// name another instance. Before anything else than the ID is replaced, the key that was in use
// is certain to make no further instance.
//
// Each step has a file: place, create, attempt, move, observe, replace, gone, delete.
package machine
