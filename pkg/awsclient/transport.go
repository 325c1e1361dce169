package awsclient

import (
	"io"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// HTTPClient makes requests, as the clients of all services want it.
type HTTPClient interface {
	Do(r *http.Request) (*http.Response, error)
}

// transport makes the SDK's requests with bodies that can only be read. The SDK closes a
// body as soon as the reply begins. net/http may be about to see then that nothing
// follows in it; it asks by WriteTo where there is one, which the SDK answers with an
// error for a closed body rather than with its end. So a reply that is quicker than that
// ended in the middle, with its connection closed.
type transport struct{ HTTPClient }

// newTransport is one over client; nil: the SDK's own.
func newTransport(client *http.Client) transport {
	if client == nil {
		return transport{awshttp.NewBuildableClient()}
	}
	return transport{client}
}

// Do implements HTTPClient.
func (t transport) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r = r.WithContext(r.Context()) // a copy: the SDK closes its own body
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return t.HTTPClient.Do(r)
}
