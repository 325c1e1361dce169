// Package object is the port to object storage, where every durable fact lives.
//
// It is four verbs, because that is what all stores honour: Get, Put with a
// precondition, an unconditional Delete, and a paged List. Compare-and-swap is
// a Put with IfMatch or IfAbsent; the token compared is opaque and may be a hash
// of the body, so a writer that needs its write to be seen must change the body
// (records carry a rev for that).
//
// A write whose reply was lost is ErrUnknown: it may have landed, or may still
// land later. Nothing may be concluded from it alone; Settle reads back.
package object

import (
	"context"
	"errors"
	"time"
)

// The three kinds of failure beside ErrRefused. Test with errors.Is; a context's end
// is wrapped beside ErrUnknown, because the request may have been under way. A key
// that CheckKey refuses is ErrInvalidKey from every verb: nothing was sent.
var (
	ErrNotFound = errors.New("object not found")
	ErrConflict = errors.New("object precondition failed")
	ErrUnknown  = errors.New("object storage outcome unknown")
)

// ETag is a store's opaque version token. Only equality means anything.
type ETag string

// Info describes an object without its body.
type Info struct {
	Key     string
	ETag    ETag
	Size    int64 // bytes
	ModTime time.Time
}

// Object is one object, whole.
type Object struct {
	Info
	Body []byte
}

// Page is one page of a listing, in ascending order of key. Next is empty on
// the last page, else the token that asks for the following one.
type Page struct {
	Objects []Info
	Next    string
}

// Precondition is what must hold for a Put to be applied. The zero value always
// holds.
type Precondition struct {
	absent bool
	etag   bool // an IfMatch, even of the empty etag
	match  ETag
}

// IfAbsent holds when no object has the key.
func IfAbsent() Precondition { return Precondition{absent: true} }

// IfMatch holds when the object with the key has this etag. An absent object
// never matches, and nothing matches the empty etag: a caller that forgot its
// etag must not overwrite.
func IfMatch(e ETag) Precondition { return Precondition{etag: true, match: e} }

// Absent reports whether p is IfAbsent.
func (p Precondition) Absent() bool { return p.absent }

// Match returns the etag of an IfMatch, or the empty string.
func (p Precondition) Match() ETag { return p.match }

// Conditional reports whether p is anything but the zero value.
func (p Precondition) Conditional() bool { return p.absent || p.etag }

// Holds reports whether p holds of a key whose object has the etag current;
// current is empty when no object has the key.
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

// Store is one bucket. Implementations are safe for concurrent use, honour ctx
// in every call, never retry a Put by themselves (a retry would hide which of
// two writes landed), and may retry reads within ctx.
//
// Keys are what CheckKey accepts.
type Store interface {
	// Get returns the object, or ErrNotFound, or ErrUnknown when the store
	// can't be asked. The body is the caller's to change.
	Get(ctx context.Context, key string) (Object, error)

	// Put writes the object whole and returns its new etag. ErrConflict means
	// that the precondition did not hold and that this request changed nothing;
	// it includes the 404 that some stores answer to an if-match on an absent
	// key. ErrRefused without ErrUnknown changed nothing either. Every other
	// failure is ErrUnknown. A successful Put is durable and is seen by every
	// later Get and List.
	Put(ctx context.Context, key string, body []byte, pre Precondition) (ETag, error)

	// Delete removes the object; deleting an absent one succeeds. There is no
	// conditional delete: no store we know honours one.
	Delete(ctx context.Context, key string) error

	// List returns a page of the objects whose keys start with prefix (any
	// string, not only whole segments). token is empty or a Page's Next. Callers
	// use Pages or All, which check what a store returns.
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
