// Package rpc is the gRPC layer between the parts of a cluster.
//
// NewServer creates the servers. The checks on every call are made here and not in the
// services: the caller comes from the verified certificate; one access table (Access) says
// which callers may call a method, and a method without a row can't be served; a server that
// is not the leader refuses leader-only calls with NOT_LEADER and the leader's address; sizes,
// connections and rates are limited; refusals are logged; and a handler's error becomes a
// status by its Kind.
//
// All checks precede reading a call's message: first from memory, when its headers arrive
// (guard.tap), and then in the call's own goroutine, which may read the store (guard.stream).
// peerConn counts received bytes before they take memory, and throttles a peer by not reading.
//
// Client is the other side: one connection to the leader of a shard. It is given several
// addresses, follows NOT_LEADER, and waits between attempts according to Backoff.
package rpc
