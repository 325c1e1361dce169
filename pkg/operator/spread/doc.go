// Package spread says how many of a pool's instances are on each shard, and which
// leave: pure functions.
package spread
