// Package broadcast tells many readers what has changed, without ever waiting for
// one of them.
//
// A Hub follows a set of keyed values, such as the statuses of groups. Whoever
// changes something marks its key, which costs next to nothing; one goroutine
// looks at marked keys, at a bounded pace, and passes what really became
// different on to all subscriptions. Each of them holds at most the latest value
// of each key that its reader has not taken yet: a slow reader misses states in
// between, never the last one. The order of a subscription:
//
//  1. It joins; from now on it is told of every change.
//  2. All keys are looked at. What is there then is its snapshot.
//  3. Its reader gets the snapshot, an item that ends it, then changes. A newer
//     value takes the place of an older one that waits, so none ever follows a
//     newer one.
//
// Every change has a revision, and an item says up to which one its reader was told
// of everything. Who comes back with that revision soon enough resumes: its snapshot
// is only of what has changed since, those that came to their end included. A hub
// remembers no past states: of each key that it follows the revision of the last
// change, and of those that it has forgotten the highest.
//
// A Feed passes on single events that can't be merged, such as problems.
//
// A reader that falls too far behind is cut off: it gets ErrBehind and starts
// anew from a snapshot. Nothing is looked at while nobody subscribes, or did just now.
package broadcast

import "errors"

// ErrBehind is the end of a subscription whose reader was too slow.
var ErrBehind = errors.New("too far behind")

// ErrClosed is the end of a subscription whose hub has ended.
var ErrClosed = errors.New("closed")
