// Package delivery gives instances the files and certificates that their group's template
// defines, and keeps them up to date.
//
// The server stores no state about an instance's files: it compares each health report with
// the desired set (Judge). Files that differ are pushed on the instance's file stream,
// followed by the config hash and the names of the whole set. The agent applies a set as a
// whole or not at all, and then reports at once. A lost push, a new leader and a deleted file
// are therefore all repaired by the next report. When a group changes, its connected instances
// are compared again at once, from their last reports.
//
// Each instance with an open stream has a session: the public keys that it submitted on its
// key stream, its last report, and digests, but no contents. At most one goroutine works for a
// session, and only while there is work; a change in the meantime makes it run once more, so
// nothing queues up.
//
// Secrets and objects are read through a cache (sources), so that a thousand agents that need
// the same file cost one request. A certificate is issued only for a key that its instance
// submitted, and is logged before it is sent.
package delivery
