// Package spread distributes a pool's instances over its shards, and selects which to remove,
// by pure functions.
package spread
