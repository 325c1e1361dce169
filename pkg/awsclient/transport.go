package awsclient

import (
	"io"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// HTTPClient makes HTTP requests, as the service clients require it.
type HTTPClient interface {
	Do(r *http.Request) (*http.Response, error)
}

// transport hides the WriteTo method of the SDK's request bodies. The SDK closes a body as soon
// as the reply begins, while net/http may still be about to read its end: with WriteTo it then
// gets an error for a closed body instead of EOF, and a quick reply is cut off with its
// connection.
type transport struct{ HTTPClient }

// newTransport returns a transport over client; nil: the SDK's default.
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
