package object

import (
	"errors"
	"fmt"
	"strings"
)

// ErrRefused is wrapped by the error of a request that the store refused and would refuse
// again until something is changed: the bucket does not exist, access is denied, the endpoint
// is not an object store. Waiting does not help, so PutConfirmed, Probe and commands end at
// once.
//
// It says nothing else about the state of the store. A refused read wraps ErrUnknown, too. A
// Put or Delete wraps ErrUnknown, too, unless it is proven that the request changed nothing;
// then ErrRefused stands alone.
var ErrRefused = errors.New("object storage refused the request")

// Refused returns the error of a request that the store refused, and that may yet have changed
// something, or of a read: it wraps ErrRefused, ErrUnknown and what the store said. Its text is that
// of the refusal alone, as for a user the outcome of a refused request is not unknown.
func Refused(said error) error { return &outcomeUnknown{fmt.Errorf("%w: %w", ErrRefused, said)} }

// ErrUnfit is wrapped by errors that name a required property that the store lacks.
// ErrNoConditionalWrites is the most frequent one.
var (
	ErrUnfit               = errors.New("object storage is unfit")
	ErrNoConditionalWrites = fmt.Errorf("%w: it does not honour conditional writes", ErrUnfit)
)

// final reports whether a retry of the request that failed with err is futile.
func final(err error) bool { return errors.Is(err, ErrRefused) || errors.Is(err, ErrUnfit) }

// Answer is an error response of a store. Errors of the kinds above wrap it if there was a
// response.
type Answer struct {
	Bucket  string
	Status  int    // of HTTP
	Code    string // from the store's error document, such as AccessDenied; may be empty
	Message string
}

// maxMessage bounds the quoted part of a store's message, in bytes.
const maxMessage = 500

// Error returns the bucket and the store's message.
func (a *Answer) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "bucket %q: %d", a.Bucket, a.Status)
	if a.Code != "" {
		fmt.Fprintf(&text, " %s", a.Code)
	}
	if a.Message != "" {
		fmt.Fprintf(&text, ": %.*s", maxMessage, a.Message)
	}
	return text.String()
}

// Reason returns why a store can't be used, briefly and without confidential data: the property
// that it lacks, or the status and code of its response. It is empty if err has neither.
func Reason(err error) string {
	var lack *Lack
	if errors.As(err, &lack) {
		return lack.What
	}
	var answer *Answer
	if !errors.As(err, &answer) {
		return ""
	}
	code := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, answer.Code)
	return strings.TrimSpace(fmt.Sprintf("the store returned %d %.60s", answer.Status, code))
}

// Lack is a property that a store lacks. It wraps Kind, which is ErrUnfit or wraps it.
type Lack struct {
	Kind   error
	What   string // the property: a constant text
	Detail string // what was observed; may be empty
}

// Error returns the kind, the property and the detail.
func (l *Lack) Error() string {
	text := l.Kind.Error() + ": " + l.What
	if l.Detail != "" {
		text += ": " + l.Detail
	}
	return text
}

// Unwrap returns the kind.
func (l *Lack) Unwrap() error { return l.Kind }
