// Package delivery gives instances the files and certificates that their group's
// template names, and keeps them so.
//
// Nothing is kept of what an instance has: that is judged by each of its health
// reports (Judge) against what it is to have. What differs is pushed on its file
// stream, ended by the config hash and the names of the whole set, which the
// agent takes over as a whole or not at all and then reports at once. So a push
// that was lost, a leader that changed and a file that somebody deleted are all
// mended in the same way, by the next report. A group that changes has its
// connected instances judged again at once, from their last reports.
//
// Of each instance that has streams open a session is kept: the public keys that
// it submitted on its key stream, its last report, and digests, but no contents.
// One goroutine at a time works for a session, and only while there is something
// to do; what comes meanwhile makes it look once more, so nothing ever queues up.
//
// Secrets and objects of storage come through a cache (sources), since a thousand
// agents that need the same file must cost one request. A certificate is issued
// only for a key that its instance submitted, and is logged before it is sent.
package delivery
