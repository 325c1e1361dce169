// Package client calls shards through their OperatorService: nstance-admin and the Kubernetes
// operator are built on it.
//
// A Client finds each shard's leader and follows it, retries idempotent calls while no leader
// answers, and watches: first the current state, then changes, again after every reconnection.
// It uses TLS configurations, and does not know where the identity behind them is stored.
package client
