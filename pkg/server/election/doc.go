// Package election elects one leader per shard with nothing but conditional
// writes to object storage, and tells the leader, before every act, whether it
// may still act.
//
// One record says who leads. No two hosts' clocks are ever compared: a host
// only measures how long ago something happened to itself. Safety rests on two
// of these measurements and on nothing else:
//
//   - The fence. To act, a leader needs a write of its record that was sent less
//     than the fence window ago and is known to have landed. Acting is starting
//     a provider mutation, or acknowledging a durable write to a caller.
//   - The wait. A new leader waits 1.1 times the fence window of the record it
//     replaced, counted from when it knew its own write to have landed. By then
//     whatever its predecessor had been allowed to start has been started. Only
//     a released record needs no wait: its holder had stopped before it wrote
//     the release.
//
// The lease only makes others suspicious. A record whose etag was seen unchanged
// for its lease and a tenth may be replaced; so may one whose holder shows a
// sign of death: its connection was closed and it could not be reached again
// within 250 ms, or its address refuses connections, or another server answers
// there. A timeout is no sign. A wrong suspicion costs a change of leader and
// never a second one, because each write is conditional on the etag it replaces
// and each new leader waits.
//
// The timing may change in the middle of a term (timing.go). Since a successor
// waits by the record, the leader acts by the shortest window that any record
// speaks of which may stand in the store, and by a longer one only once the write
// that carries it is known to have landed.
//
// A write whose reply was lost may have landed or may land later. Every attempt
// has a rev of its own, so reading the record back tells which attempt it was,
// and the fence and the lease then count from when that attempt was sent.
//
// Elapsed time is the larger of the monotonic and the wall clock's, because the
// monotonic clock stands still while a host is suspended. That is the safe side
// for everything that ends a right. What must have passed before a right begins,
// the wait, is counted on the monotonic clock alone: a wall clock set forward
// must not shorten it.
//
// A leader may live and be of no use, because what it needs can't be had from its
// host. Needs keeps account of what it tries in vain; after a while it asks those
// who follow it to try the same, and releases the record to one that succeeded
// (giveup.go). That is a matter of usefulness alone: it ends a term as a campaign
// that is over does, and the fence and the wait are what they are.
//
// The decisions are a pure state machine (machine.go and the files named for its
// phases: follow.go, take.go, hold.go, release.go). The Elector drives it: it
// reads the clocks, does what the machine asks for, and reports what came of it.
package election
