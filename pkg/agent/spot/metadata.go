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
	// linkLocal is where every cloud has its metadata service. Google's has a name
	// too, but a name would be looked up, and its answer could be anybody's.
	linkLocal = "169.254.169.254"
	// requestTimeout bounds one request, which usually takes a few milliseconds.
	requestTimeout = 2 * time.Second
	// maxAnswer is the longest answer that is read, in bytes. Notices have about a
	// hundred.
	maxAnswer = 4 << 10
	maxHeader = 16 << 10
)

// metadata asks metadata services.
type metadata struct{ client *http.Client }

func newMetadata(dial func(ctx context.Context, addr string) (net.Conn, error)) *metadata {
	t := &http.Transport{
		Proxy:                  nil, // whatever the environment says
		MaxIdleConns:           1,
		MaxConnsPerHost:        2,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true, // a small answer must stay small
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

// answer is what a metadata service answered.
type answer struct {
	code   int
	header http.Header
	body   string // without white space around it
}

// ask makes one request. The error says what could not be had, never what was
// answered.
func (m *metadata) ask(ctx context.Context, method, url, header, value string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return answer{}, fmt.Errorf("ask the metadata service: %w", err)
	}
	req.Header.Set(header, value)
	resp, err := m.client.Do(req)
	if err != nil {
		return answer{}, fmt.Errorf("ask the metadata service: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return answer{}, fmt.Errorf("read the metadata service's answer to %s: %w", req.URL.Path, err)
	}
	if len(body) > maxAnswer {
		return answer{}, fmt.Errorf("read the metadata service's answer to %s: longer than %d bytes", req.URL.Path, maxAnswer)
	}
	return answer{code: resp.StatusCode, header: resp.Header, body: strings.TrimSpace(string(body))}, nil
}

func (a answer) unexpected(path string) error {
	return fmt.Errorf("ask the metadata service for %s: it answered with status %d", path, a.code)
}
