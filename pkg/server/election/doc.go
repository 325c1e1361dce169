// Package election elects one leader per shard using only conditional writes to object
// storage, and tells the leader before each action whether it may still act.
//
// One record says which server leads. Clocks of different hosts are never compared: a host only
// measures time since its own events. Safety rests on two of these measurements:
//
//   - The fence. To act, a leader needs a write of its record that was sent less than the fence
//     window ago and is known to have landed. Acting is starting a provider mutation, or
//     acknowledging a durable write to a caller.
//   - The wait. A new leader acts no sooner than 1.1 times the fence window of the version it
//     replaced, from when it first knew that version. Its take was conditional on that version,
//     so no later renewal landed, and its predecessor has started everything it was permitted to
//     start. A released record needs no wait: its holder had stopped before it wrote the release.
//     If there was no record to replace, an unknown one may have been removed until just now, so
//     the wait counts from when the first write is known to have landed.
//
// "Known" means that a read returned the version, or its holder's line did, which is sent only
// after the write landed. A version written by a leader that still waits carries the longest
// window that may still run, so the wait for it covers its predecessors, too.
//
// The lease only governs suspicion. A record may be replaced if its etag was unchanged for 1.1
// times its lease, or if its holder shows a sign of death: its connection was closed and it
// could not be reached again within 250 ms, its address refuses connections, or another server
// answers there. A timeout is no such sign. A wrong suspicion costs a change of leader, but
// never leads to two leaders, because each write is conditional on the etag it replaces and
// each new leader waits.
//
// The timing may change during a term (timing.go). Since a successor waits according to the
// record, the leader uses the shortest window of all records that the store may hold, and a
// longer one only once the write with it is known to have landed.
//
// A write whose reply was lost may have landed or may land later. Each attempt has its own
// rev, so reading the record back shows which attempt landed; the fence and the lease then
// count from when that attempt was sent.
//
// Elapsed time is the larger of the monotonic and the wall clock's, because the monotonic
// clock stops while a host is suspended. That is the safe side for everything that ends a
// permission. The wait, which precedes a permission, uses the monotonic clock alone: a wall
// clock that is set forward must not shorten it.
//
// A leader may be alive but useless, because its host can't reach what it needs. Needs records
// failing attempts; after a while the leader asks its standbys to try the same, and releases
// the record to one that succeeded (stepdown.go). That affects only availability: it ends a
// term like the end of a campaign, and the fence and the wait still apply.
//
// The decisions are a pure state machine (machine.go and the files named after its phases:
// follow.go, take.go, hold.go, release.go). The Elector drives it: it reads the clocks, executes
// the machine's commands, and reports their results.
package election
