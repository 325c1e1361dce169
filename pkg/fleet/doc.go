// Package fleet holds the nouns of a shard: ids, groups, instances and the
// phases of an instance's life. It has no behaviour beyond what is true of the
// nouns themselves, does no I/O, and imports nothing of this project, so that
// every other package can speak in its words.
package fleet
