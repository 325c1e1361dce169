// Package shardtest runs a whole shard in one process, on simulated time: real
// servers (package server) and real agents (package agent) over an object store,
// a provider and a network in memory, inside a testing/synctest bubble. An hour
// of a shard's life takes a fraction of a second, and what goes wrong in it is
// drawn from a seed.
//
// The pieces: Network connects named hosts. A life is one start of a server: it
// can be suspended, and it can end at any request to the store or the provider,
// before or after that took effect. Shard puts everything together. A Timeline
// tells what happened. The book checks what must hold at every write of the
// store and at every call of the provider; Settle, that a shard comes to rest.
package shardtest
