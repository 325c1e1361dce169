// Package audit records changes and refusals with their callers: each accepted change, each
// refused call and handshake, each registration with its claims, each revoked identity.
//
// Details of a call are noted while it is handled (Note), and one Event is recorded when it
// ends. An event is written as a log line, counted, and passed to a Sink. Counts are complete.
// Lines are rate-limited per source and in total, and the next line of a source says how many
// were omitted, so that a flood neither fills the log nor goes unnoticed.
package audit
