// Package history holds what happened in a shard and why: its events, which are the decisions of
// its leaders and the changes that callers made.
//
// The leader keeps them in memory, a bounded number of a bounded size. If there are too many, the
// oldest ones of the tenant that has most are dropped, so that one tenant can't make the others'
// disappear. Recording an event is an append under a short lock, without I/O.
//
// A decision that carries out a change names it, with its caller. A change is recorded when its call
// ends, so a decision that is durable before that does not name it: the loop's write takes longer.
//
// They are also written to one object, a few seconds after the first event and then at most once
// a minute, and only if there are new ones. The next leader reads it, so that they survive a
// takeover; what a crashed leader had not written yet is lost. Nothing else depends on it: if it
// is lost or damaged, the history begins anew.
//
// Every write is conditional on the version that was read or written last. So a former leader
// can't overwrite what a later one wrote: it finds another version, reads it, and stops because
// that has a later epoch. A leader that finds that its predecessor has written late adds these
// events to its own. No fence is needed for that.
package history
