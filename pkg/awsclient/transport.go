package awsclient

import (
	"io"
	"net/http"
	"net/netip"
	"net/url"

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

// direct is the SDK's default client, except that it uses no proxy for what answers about this very
// machine or container: a proxy would ask about its own, and could read the keys.
func direct() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			if nearby(r.URL.Hostname()) {
				return nil, nil //nolint:nilnil // net/http: no proxy
			}
			return http.ProxyFromEnvironment(r)
		}
	})
}

// nearby reports whether a host is an address that is served on this machine or by its hypervisor.
func nearby(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && (addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.String() == containerIPv6 || addr.String() == metadataIPv6)
}

// Do implements HTTPClient.
func (t transport) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r = r.WithContext(r.Context()) // a copy: the SDK closes its own body
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return t.HTTPClient.Do(r)
}
