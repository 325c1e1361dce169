// Package record reads and writes the JSON records of a store that several
// versions of this program share. A newer version may have put fields into a
// record that this one has no name for. They are no mistake: they are left out of
// account, and are still there after this version has written the record.
//
// That is safe because no new field may change what an old one means; see
// docs/storage.md. Fields are found in the record itself and in the objects that
// it holds, but not in lists and maps, whose elements have no fixed place: records
// that are rewritten have no lists of objects.
package record
