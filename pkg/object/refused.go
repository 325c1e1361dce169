package object

import (
	"errors"
	"fmt"
	"strings"
)

// ErrRefused is wrapped by the error of a request that the store answered with a
// refusal which the same request will meet again until something is changed: the
// bucket does not exist, access is denied, the endpoint is not one of this store.
// Waiting does not help, so Settle, Probe and commands end at once.
//
// It says nothing else about the state of the store. A read that is refused wraps
// ErrUnknown too. A Put or Delete wraps ErrUnknown too unless it is proven that the
// request changed nothing; then ErrRefused stands alone.
var ErrRefused = errors.New("object storage refused the request")

// ErrUnfit is wrapped by errors that name a property which the store lacks and which
// Nstance can't do without. ErrNoConditionalWrites is the most frequent kind.
var (
	ErrUnfit               = errors.New("object storage is unfit")
	ErrNoConditionalWrites = fmt.Errorf("%w: it does not honour conditional writes", ErrUnfit)
)

// final reports whether a repetition of the request that failed with err is futile.
func final(err error) bool { return errors.Is(err, ErrRefused) || errors.Is(err, ErrUnfit) }

// Answer is the error of a store that answered with something other than success.
// Errors of the kinds above wrap it where there was an answer.
type Answer struct {
	Bucket  string
	Status  int    // of HTTP
	Code    string // as the store's error document has it, such as AccessDenied; may be empty
	Message string
}

// maxMessage bounds what is repeated of a store's own text, in bytes.
const maxMessage = 500

// Error names the bucket, and what the store said.
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

// Reason is why a store can't be used, in a few words that are no secret:
// the property that it lacks, or the status and code of its answer. Empty: err says
// neither.
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
	return strings.TrimSpace(fmt.Sprintf("the store answers %d %.60s", answer.Status, code))
}

// Lack is a property that a store lacks. It wraps Kind, which is ErrUnfit or wraps it.
type Lack struct {
	Kind   error
	What   string // the property: the same words every time
	Detail string // what was seen; may be empty
}

// Error names the kind, the property and what was seen.
func (l *Lack) Error() string {
	text := l.Kind.Error() + ": " + l.What
	if l.Detail != "" {
		text += ": " + l.Detail
	}
	return text
}

// Unwrap returns the kind.
func (l *Lack) Unwrap() error { return l.Kind }
