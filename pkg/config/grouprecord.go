package config

import (
	"bytes"
	"fmt"
	"reflect"
	"time"

	"github.com/nstance/nstance/pkg/record"
)

// GroupRecord is the leader's record of one group that was changed through the API, stored as
// one object:
//
//	{ "epoch": 3, "rev": 12, "writer": "…", "size": 5, "leaving": ["…"], "revision": 4 }
//
// Its zero value means that there is no object. A tombstone, with DeletedAt, replaces the
// record of a group that was deleted, or that no longer differs from static config, because an
// absent object could also be a mistake. The functions that edit a record return a copy with
// the same header.
type GroupRecord struct {
	Header

	// DeletedAt is when a tombstone was written; nil if it is not one.
	DeletedAt *time.Time `json:"deleted_at,omitempty"`

	// ConfigSize is the size that the last accepted config gave a group whose size is not overridden.
	// If a later leader finds a smaller one in that config, it has found an outdated copy.
	ConfigSize *int `json:"config_size,omitempty"`

	Entry

	exists bool // stored, and not a tombstone
	// since is a lower bound of the next revision, besides Revision.
	since uint64
}

// DecodeGroup parses a record; comments and trailing commas are allowed. Unknown fields are
// kept, and ResolveGroup reports them. The error is of type Problems.
func DecodeGroup(data []byte) (GroupRecord, error) {
	root, err := parseSyntax(data)
	if err != nil {
		return GroupRecord{}, err
	}
	var r GroupRecord
	d := newDecoder(data)
	d.tolerant = true
	d.decode("", root, reflect.ValueOf(&r).Elem())
	r.unknown = passed[GroupRecord](d, root)
	if err := append(d.problems, r.check()...).sorted().Err(); err != nil {
		return GroupRecord{}, err
	}
	if r.exists = r.DeletedAt == nil; !r.exists {
		r.Entry = Entry{Revision: r.Revision, unknown: r.unknown}
	}
	return r, nil
}

// check validates a record independently of the static config.
func (r GroupRecord) check() Problems {
	f := findings{problems: r.Entry.check()}
	if r.ConfigSize != nil {
		between(&f, "config_size", *r.ConfigSize, 0, MaxGroupSize)
	}
	return f.problems
}

// UnreadableGroup represents an object that can't be read because of err. Its group is disabled.
func UnreadableGroup(h Header, err error) GroupRecord {
	return GroupRecord{Header: h, Entry: Entry{unreadable: Problems{{Message: err.Error()}}}, exists: true}
}

// Encode returns the object to store. It is deterministic, and fails with ErrTooLarge if the
// result could not be read again.
func (r GroupRecord) Encode() ([]byte, error) {
	data, err := record.Encode(r, r.unknown)
	if err != nil {
		return nil, fmt.Errorf("encode the record of a group: %w", err)
	}
	if len(data) > MaxSize {
		return nil, fmt.Errorf("encode the record of a group: %w: %d bytes, at most %d are allowed: remove vars",
			ErrTooLarge, len(data), MaxSize)
	}
	return data, nil
}

// Exists reports whether there is a record that is not a tombstone.
func (r GroupRecord) Exists() bool { return r.exists }

// Stored reports whether there is an object: a record or a tombstone.
func (r GroupRecord) Stored() bool { return r.exists || r.DeletedAt != nil }

// StoredRevision returns the revision of the object; 0 if there is none.
func (r GroupRecord) StoredRevision() uint64 {
	if !r.Stored() {
		return 0
	}
	return r.Revision
}

// Unreadable reports whether the object can't be read.
func (r GroupRecord) Unreadable() bool { return r.unreadable != nil }

// Same reports whether two records are equal apart from their headers.
func (r GroupRecord) Same(other GroupRecord) bool {
	r.Header, other.Header = Header{}, Header{}
	r.since, other.since = 0, 0
	if r.DeletedAt != nil && other.DeletedAt != nil {
		r.DeletedAt = other.DeletedAt
	}
	if r.exists != other.exists || r.Unreadable() || other.Unreadable() || reflect.DeepEqual(r, other) {
		return reflect.DeepEqual(r, other)
	}
	is, err := r.Encode() // an empty list equals an absent one
	says, otherErr := other.Encode()
	return err == nil && otherErr == nil && bytes.Equal(is, says)
}

// with returns the record with another entry of the same revision.
func (r GroupRecord) with(e Entry) GroupRecord {
	r.Entry, r.exists, r.DeletedAt, r.since = e, true, nil, 0
	if e.Size != nil || e.Removed {
		r.ConfigSize = nil
	}
	return r
}

// revised returns the record with another entry, which is a new revision if it differs.
func (r GroupRecord) revised(e Entry) GroupRecord {
	e.Revision = r.Revision
	next := r.with(e)
	if !next.Same(r) {
		next.Revision = r.nextRevision()
	}
	return next
}

func (r GroupRecord) nextRevision() uint64 { return max(r.Revision, r.since) + 1 }

// Since returns the record with a lower bound for its next revision, so that no revision of a
// group is reused.
func (r GroupRecord) Since(revision uint64) GroupRecord {
	r.since = max(r.since, revision)
	return r
}
