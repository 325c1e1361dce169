// Package config turns the text of a shard's configuration into values that
// the rest of the server can trust.
//
// There are two texts. The static config is JSON with comments and trailing
// commas, written by Terraform or a person. It passes through three steps that
// do one thing each: decode (strict, and every complaint carries its path),
// apply defaults, validate (which only checks). All problems are reported at
// once. The dynamic groups are what the leader itself keeps of API calls:
// overrides of static groups, and groups of their own.
//
// Resolve merges both into fleet.Group values, one bad dynamic entry disabling
// its own group and nothing else. Edits of the dynamic groups are pure
// functions from one value to the next; storing the result is the caller's.
//
// The package does no I/O and knows no clock. Everything it reads is untrusted:
// size, nesting and the work of a template are bounded.
package config
