// Package client asks shards through their OperatorService: nstance-admin and the
// Kubernetes operator are built on it.
//
// A Client finds each shard's leader and follows it, repeats what is safe to
// repeat while none answers, and watches: what there is, then what changes, again
// after every reconnection. It knows TLS configurations, and not where the identity
// behind them is kept.
package client
