// Package backup copies the bucket of a cluster into one file, and puts such a file back.
//
// A backup holds every object, but for those of the election (leader/) and of checks (probe/): an election
// record that is put back could make an epoch repeat. Secrets are in it as they are in the bucket, sealed. The file is a
// gzipped tar, with the objects' keys as names, behind an entry that says what it is.
package backup

import (
	"slices"
	"strings"
)

// Bounds of a backup, in bytes. The largest objects that Nstance writes have 8 MiB; a restore has the whole backup in
// memory.
const (
	maxObject = 64 << 20
	maxBackup = 2 << 30
)

// Part returns the first segment of a key, such as groups: what Compare tells apart.
func Part(key string) string {
	part, _, _ := strings.Cut(key, "/")
	return part
}

// Shard returns the shard that an object belongs to; empty: to the cluster.
func Shard(key string) string {
	part, rest, _ := strings.Cut(key, "/")
	switch part {
	case "config", "applied", "events", "leader":
		name, _, _ := strings.Cut(rest, ".")
		return name
	case "groups", "instance", "request", "certlog":
		name, _, _ := strings.Cut(rest, "/")
		return name
	default:
		return ""
	}
}

// own reports whether an object belongs to the servers that run, not to a backup.
func own(key string) bool { return Part(key) == "leader" || Part(key) == "probe" }

// expendable reports whether an object that the store refuses to return, since it was archived, may be missing in
// a backup.
func expendable(key string) bool { return Part(key) == "certlog" }

// order returns the parts in the order in which they are read, and put back. A group is read after its
// instances, so that no record of an instance names a later version of its group than the backup has. A server
// boots from applied/ or config/, and makes a CA if there is none: these are put back last, after the CA.
func order(parts []string) []string {
	last := []string{"groups", "cluster", "applied", "config"}
	slices.SortFunc(parts, func(a, b string) int {
		if n := slices.Index(last, a) - slices.Index(last, b); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	return parts
}
