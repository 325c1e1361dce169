// Package object is the interface to object storage, which holds all durable state.
//
// It has four verbs, because all stores support them: Get, Put with a precondition, an
// unconditional Delete, and a paged List. Compare-and-swap is a Put with IfMatch or IfAbsent;
// the compared token is opaque and may be a hash of the body, so a write must change the body
// to be noticed (records have a rev for that).
//
// A write whose reply was lost is ErrUnknown: it may have landed, or may still land later.
// PutConfirmed resolves it by reading back.
package object

import (
	"context"
	"errors"
	"time"
)

// The kinds of failure besides ErrRefused. Test with errors.Is. The end of a context is wrapped
// with ErrUnknown, because the request may have been in flight. A key that CheckKey refuses is
// ErrInvalidKey from every verb: nothing was sent.
var (
	ErrNotFound = errors.New("object not found")
	ErrConflict = errors.New("object precondition failed")
	ErrUnknown  = errors.New("object storage outcome unknown")
)

// ETag is a store's opaque version token, compared only for equality.
type ETag string

// Info describes an object without its body.
type Info struct {
	Key     string
	ETag    ETag
	Size    int64 // bytes
	ModTime time.Time
}

// Object is an object with its body.
type Object struct {
	Info
	Body []byte
}

// Page is one page of a listing, in ascending order of keys. Next is the token of the next page;
// empty on the last page.
type Page struct {
	Objects []Info
	Next    string
}

// Precondition is the condition of a Put. The zero value is unconditional.
type Precondition struct {
	absent bool
	etag   bool // an IfMatch, even of the empty etag
	match  ETag
}

// IfAbsent holds when no object has the key.
func IfAbsent() Precondition { return Precondition{absent: true} }

// IfMatch holds if the object has this etag. An absent object never matches, and neither does
// the empty etag: a caller that forgot its etag must not overwrite.
func IfMatch(e ETag) Precondition { return Precondition{etag: true, match: e} }

// Absent reports whether p is IfAbsent.
func (p Precondition) Absent() bool { return p.absent }

// Match returns the etag of an IfMatch, or the empty string.
func (p Precondition) Match() ETag { return p.match }

// Conditional reports whether p is anything but the zero value.
func (p Precondition) Conditional() bool { return p.absent || p.etag }

// Holds reports whether p holds for an object with the etag current, which is empty if there
// is no object.
func (p Precondition) Holds(current ETag) bool {
	switch {
	case p.absent:
		return current == ""
	case p.etag:
		return p.match != "" && p.match == current
	default:
		return true
	}
}

// Store is one bucket. Implementations are safe for concurrent use, honour ctx in every call,
// never retry a Put on their own (a retry would hide which of two writes landed), and may
// retry reads within ctx.
//
// Keys are those that CheckKey accepts.
type Store interface {
	// Get returns the object, ErrNotFound, or ErrUnknown if the store can't be read. The caller
	// owns the body.
	Get(ctx context.Context, key string) (Object, error)

	// Put writes the whole object and returns its new etag. ErrConflict means that the
	// precondition did not hold and that this request changed nothing; it includes the 404
	// that some stores return for an if-match on an absent key. ErrRefused without ErrUnknown
	// changed nothing either. Every other failure is ErrUnknown. A successful Put is durable
	// and visible to every later Get and List.
	Put(ctx context.Context, key string, body []byte, pre Precondition) (ETag, error)

	// Delete removes the object. Idempotent. It is unconditional: no known store supports a
	// conditional delete.
	Delete(ctx context.Context, key string) error

	// List returns a page of the objects whose keys start with prefix, which need not end at a
	// slash. token is empty or a Page's Next. Callers use Pages or All, which check the results.
	List(ctx context.Context, prefix, token string) (Page, error)
}

// Verb names a method of Store.
type Verb string

// The four verbs.
const (
	VerbGet    Verb = "get"
	VerbPut    Verb = "put"
	VerbDelete Verb = "delete"
	VerbList   Verb = "list"
)
