// Package reconcile is the leader's loop: observe, decide, apply. It runs for one
// term of leadership and has no durable state; what it knows beyond the records it
// learns again from the provider and the agents.
//
// One goroutine decides. Every event (a change of a group, an agent that connects
// or disconnects, a provider event, a timer) marks a group in the schedule. The
// goroutine takes one group at a time, builds a plan.View of it from the ledger and
// what was observed (package observe), and hands out the actions of plan.Next. So
// passes never run concurrently, events during a pass are covered by the next one,
// and no pass waits for the store or the provider. While a worker acts on an
// instance, the instance is busy and nothing new is decided about it.
//
// The parts act: the launcher creates instances (launcher.go, launch.go), in the
// order of package fair and at the pace that the outcomes of earlier creates allow
// (package pacing), the poller polls single VMs (poll.go), the sweeper compares the
// provider with the ledger (sweep.go), package balance registers with load
// balancers, and leave.go removes instances. Each part has its own state and lock,
// and calls no other part while holding the lock, except to read the ledger and the
// groups, which answer from memory, and the pace of a group. Only Loop.passing is
// held across parts, by the deciding goroutine. It is always locked first.
//
// An instance is created in this order: id, nonce, record (pending, durable, with
// the time of the create), and only then the provider's create under the leader's
// fence, with the id as the idempotency token. It is removed in this order: record
// (deleting), the provider's delete, and the tombstone once the provider no longer
// has the VM. After a crash between any two steps the next leader continues from
// the record with the same id.
//
// While the provider throttles, package paced delays calls and adapts their rate to
// what the provider accepts. Throttling and deletions that do not end (package deletions)
// are lasting problems.
//
// Two mechanisms don't depend on events. The sweep compares the provider's list
// with the ledger in both directions, and only nominates VMs: a Get confirms. And
// if the two differ so much that the store rather than machines must have been
// lost, the loop holds: it changes nothing, reports a problem, and checks again in
// every sweep.
package reconcile
