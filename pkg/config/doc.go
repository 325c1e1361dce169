// Package config parses a shard's configuration into values that the rest of the server can
// trust.
//
// There are two parts. The static config is JSON with comments and trailing commas, written by
// Terraform or an administrator. It is processed in three steps: decode (strict, and every
// problem has its path), apply defaults, validate (which only checks). All problems are
// reported at once. The dynamic groups are the leader's records of API calls: overrides of
// static groups, and groups created through the API.
//
// Resolve merges both into fleet.Group values; an invalid record disables only its own group.
// Edits of records are pure functions; storing the result is up to the caller.
//
// The package does no I/O and reads no clock. All input is untrusted: size, nesting and the
// work of a template are bounded.
package config
