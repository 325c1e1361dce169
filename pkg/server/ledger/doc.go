// Package ledger keeps the records of the shard's instances and groups.
//
// Object storage is the source of truth: one object per instance, and one per group. The
// ledger holds all records in memory, so that reads are free, and changes them by conditional
// writes only:
//
//   - every record has {epoch, rev, writer}; rev is incremented by each write, so the body, and an
//     etag that is a hash of it, always changes;
//   - a write whose reply was lost is resolved by reading back;
//   - a write that conflicts with another writer's is abandoned: the record is reread, and
//     ErrConflict tells the caller to decide again;
//   - every write runs under the fence of the leader's term, and no term overwrites a record of a
//     later one.
//
// A SQLite file caches bodies and etags, so that a restart reads only what changed. It is
// written asynchronously; without it, or with a stale or broken one, only time is lost.
package ledger
