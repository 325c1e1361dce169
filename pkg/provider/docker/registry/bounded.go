package registry

import (
	"fmt"
	"io"
	"net/http"

	"github.com/nstance/nstance/pkg/provider"
)

// maxAnswer bounds what is read of one answer, in bytes: as much as the protocol has
// every registry take as a manifest.
const maxAnswer = 4 << 20

// bounded reads no answer beyond maxAnswer.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = &boundedBody{answer.Body, maxAnswer}
	}
	return answer, err
}

// boundedBody fails where a longer body would go on: cut short it would look whole.
type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w: the registry's answer is longer than %d bytes", provider.ErrInvalid, maxAnswer)
	}
	return n, err
}
