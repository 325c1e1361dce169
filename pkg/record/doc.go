// Package record reads and writes the JSON records of a store that several versions of this
// program share. A newer version may have written fields that this one does not know. They are
// not mistakes: they are ignored, and kept when this version writes the record.
//
// That is safe because a new field must not change the meaning of an old one; see
// docs/storage.md. Unknown fields are kept in the record itself and in nested objects, but not
// in lists and maps, whose elements have no fixed position: records that are rewritten have no
// lists of objects.
package record
