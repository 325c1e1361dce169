// Package fleet holds the domain types of a shard: ids, groups, instances and the
// phases of an instance. It does no I/O and imports no other package of this
// project, so that every other package can use its types.
package fleet
