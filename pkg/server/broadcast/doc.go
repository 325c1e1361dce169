// Package broadcast publishes changes to many readers and never waits for one.
//
// A Hub follows a set of keyed values, such as the statuses of groups. A change marks its key,
// which is cheap; one goroutine reads marked keys at a bounded rate and passes values that
// differ to all subscriptions. A subscription holds at most the latest value per key that its
// reader has not received: a slow reader misses intermediate states, never the last one. The
// order within a subscription:
//
//  1. It joins, and from now on receives every change.
//  2. All keys are read. The values are its snapshot.
//  3. Its reader gets the snapshot, an item that ends it, then changes. A newer value
//     replaces a queued older one, so values never go backwards.
//
// Every change has a revision, and an item carries the revision up to which its reader has
// received everything. A reader that returns with that revision soon enough resumes: its
// snapshot holds only what has changed since, final values included. A hub keeps no past
// states: it keeps the revision of the last change of each key that it follows, and the
// highest revision of those that it dropped.
//
// A Feed passes on single events that can't be merged, such as problems.
//
// A reader that falls too far behind gets ErrBehind and starts over from a snapshot. Without
// subscriptions nothing is read, except for a short time after the last one closed.
package broadcast

import "errors"

// ErrBehind ends a subscription whose reader was too slow.
var ErrBehind = errors.New("too far behind")

// ErrClosed ends a subscription whose hub has stopped.
var ErrClosed = errors.New("closed")
