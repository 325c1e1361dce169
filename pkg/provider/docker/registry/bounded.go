package registry

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxAnswer bounds a registry's answer in bytes: the size up to which every registry must
// accept manifests.
const maxAnswer = 4 << 20

// errTooLong means that an answer was not read completely. The caller decides what that means:
// a manifest that long is invalid, a list that long is incomplete.
var errTooLong = errors.New("the registry's answer is too long")

// bounded is a transport that bounds the size of answers.
type bounded struct {
	http.RoundTripper
	most int64
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = &boundedBody{answer.Body, b.most, b.most}
	}
	return answer, err
}

// boundedBody returns an error instead of a truncated body, which could look complete.
type boundedBody struct {
	io.ReadCloser
	left, most int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", errTooLong, b.most)
	}
	return n, err
}
