// Package traces decides what belongs to which trace of a shard, and makes the spans that no single
// call has: the start of an instance, and what follows from an edit.
package traces
