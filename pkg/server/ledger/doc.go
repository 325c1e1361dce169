// Package ledger is the shard's record of its instances.
//
// The truth is in object storage: one object per instance, and one for the
// dynamic groups. The ledger holds all records in memory, so that reading costs
// nothing, and changes them by conditional writes only:
//
//   - every record carries {epoch, rev, writer}; rev grows by one with each
//     write, so the body, and an etag that is a hash of it, always changes;
//   - a write whose reply was lost is settled by reading back;
//   - a write that meets somebody else's is given up: the record is read again
//     and ErrConflict tells the caller to decide anew;
//   - every write runs under the fence of the leader's term, and no term writes
//     over a record of a later one.
//
// A SQLite file remembers bodies and etags, so that a restart reads only what
// changed. It is a cache in every respect: it is written behind the truth, and
// without it, or with a stale or broken one, nothing is lost but time.
package ledger
