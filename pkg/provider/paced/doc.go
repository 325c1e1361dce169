// Package paced wraps a provider with timeouts, concurrency limits, batching and adaptive rate
// limiting: while the provider is throttling, each call waits for its turn, at a rate found by
// additive increase and multiplicative decrease (AIMD).
package paced
