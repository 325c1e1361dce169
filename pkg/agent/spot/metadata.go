package spot

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	// linkLocal is the address of every cloud's metadata service. Google's also has a name,
	// but a name lookup could return any host.
	linkLocal = "169.254.169.254"
	// requestTimeout bounds one request, which usually takes a few milliseconds.
	requestTimeout = 2 * time.Second
	// maxAnswer is the maximum size of a response in bytes. Notices have about a hundred.
	maxAnswer = 4 << 10
	maxHeader = 16 << 10
)

// metadata is a client of metadata services.
type metadata struct{ client *http.Client }

func newMetadata(dial func(ctx context.Context, addr string) (net.Conn, error)) *metadata {
	t := &http.Transport{
		Proxy:                  nil, // ignore proxy variables
		MaxIdleConns:           1,
		MaxConnsPerHost:        2,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true, // so that a response can't expand
	}
	if dial != nil {
		t.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) }
	}
	return &metadata{&http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (m *metadata) close() { m.client.CloseIdleConnections() }

// answer is a response of a metadata service.
type answer struct {
	code   int
	header http.Header
	body   string // without surrounding white space
}

// fetch makes one request. The error never contains the response.
func (m *metadata) fetch(ctx context.Context, method, url, header, value string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return answer{}, fmt.Errorf("request to the metadata service: %w", err)
	}
	req.Header.Set(header, value)
	resp, err := m.client.Do(req)
	if err != nil {
		return answer{}, fmt.Errorf("request to the metadata service: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return answer{}, fmt.Errorf("read %s from the metadata service: %w", req.URL.Path, err)
	}
	if len(body) > maxAnswer {
		return answer{}, fmt.Errorf("read %s from the metadata service: longer than %d bytes", req.URL.Path, maxAnswer)
	}
	return answer{code: resp.StatusCode, header: resp.Header, body: strings.TrimSpace(string(body))}, nil
}

func (a answer) unexpected(path string) error {
	return fmt.Errorf("get %s from the metadata service: status %d", path, a.code)
}
