// Package reconcile is the leader's loop: observe, decide, apply. It lives as
// long as one term of leadership and holds nothing durable; what it knows
// beyond the records it learns again from the provider and the agents.
//
// One goroutine decides. Whatever happens (a change of a group, an agent that
// comes or goes, a word of the provider, a due moment) marks a group in the
// schedule; the goroutine takes one group at a time, builds a plan.View of it
// from the ledger and the observations, and hands out the actions of plan.Next.
// So there is one pass at a time per group, news that arrives meanwhile is
// covered by the next one, and no pass ever waits for the store or for the
// provider. An instance that a worker is on is busy, and nothing new is decided
// about it until the worker is done.
//
// The parts act: the launcher creates (launch.go, queue.go, fair.go), as fast as
// what became of the last creates allows (pacing.go, streak.go), the poller asks
// for single VMs (poll.go), the sweeper compares the provider with the ledger
// (sweep.go), package balance registers with load balancers, and leave.go ends
// instances. Each part has its own state and its own lock, and calls no other
// part while it holds that; the ports that answer from memory (the ledger, the
// groups) and the pace of a group it may read. Loop.passing alone is held across parts, by the deciding
// goroutine: it comes first, and nothing that is called under it takes it.
//
// The order in which an instance comes to be is: id, nonce, record (pending,
// durable, with the time of the create), and only then the provider's create
// under the leader's fence, with the id as the idempotency token. The order in
// which it goes is: record (deleting), the provider's delete, and the tombstone
// once the provider no longer has it. A crash between any two steps leaves a
// record from which the next leader goes on with the same id.
//
// While the provider throttles, its calls wait for their turn (turns.go) at a rate
// that follows what it takes (throttle.go). That, and deletions that do not end
// (deletion.go), are problems that last until they are over (lasting.go).
//
// Two things are not left to events. The sweep compares the provider's list
// with the ledger both ways, and only nominates: a Get confirms. And when the
// two disagree so widely that the store rather than a machine must have been
// lost, the loop holds: it changes nothing, says so, and looks again in every
// sweep.
package reconcile
