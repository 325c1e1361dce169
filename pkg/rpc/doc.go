// Package rpc is how the parts of a cluster speak gRPC to each other.
//
// NewServer makes the servers. What every call has to pass is here, once, and
// not in the services: who the caller is comes from the verified certificate;
// who may call what stands in one access table (Access), without a row in which
// a method can't be served; a call that only the leader may answer is refused
// elsewhere with NOT_LEADER and the leader's address; limits hold for sizes,
// connections and rates; what is refused is logged; and the error that a handler
// returns becomes a status by its Kind.
//
// All that is decided before a byte of a call's message is read: first from
// memory, when its headers have come (guard.tap), and then in its own goroutine,
// where the store may be asked (guard.stream). peerConn counts what comes over a
// connection before it takes memory, and keeps a peer waiting by not reading.
//
// Client is the other side: one connection to whichever server of a shard
// leads. It is given several addresses, follows NOT_LEADER, and leaves the
// pauses between attempts to Backoff.
package rpc
