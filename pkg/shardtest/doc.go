// Package shardtest runs a whole shard in one process, on simulated time: real
// servers (package server) and real agents (package agent) over an object store,
// a provider and a network in memory, inside a testing/synctest bubble. An hour
// of simulated time takes a fraction of a second. The faults are drawn from a seed.
//
// The pieces: Network connects named hosts. A life is one start of a server: it
// can be suspended, and it can end at any request to the store or the provider,
// before or after that took effect. Shard puts everything together. A Timeline
// records what happened. The book checks invariants at every write to the store
// and every call to the provider; Converge checks that a shard settles.
package shardtest
