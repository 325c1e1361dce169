package stack

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"time"
)

// Status is the status of one component.
type Status struct {
	Name     string `json:"name"`
	PID      int    `json:"pid"` // 0: not running
	Healthy  bool   `json:"healthy"`
	Detail   string `json:"detail,omitempty"` // the reply of its health endpoint, or how it ended
	Restarts int    `json:"restarts"`
}

func (c *component) status(ctx context.Context) Status {
	c.mu.Lock()
	s := Status{Name: c.spec.Name, Restarts: c.restarts, Detail: c.last}
	running := c.cmd != nil
	if running {
		s.PID = c.cmd.Process.Pid
	}
	c.mu.Unlock()
	if running {
		s.Healthy, s.Detail = probe(ctx, c.spec.Health)
	}
	return s
}

// insecureClient returns a client that accepts any certificate, as only the availability of a local
// endpoint is tested.
func insecureClient() *http.Client {
	insecure := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} //nolint:gosec // see above
	return &http.Client{Transport: &http.Transport{TLSClientConfig: insecure, DisableKeepAlives: true}}
}

// probe calls a health endpoint.
func probe(ctx context.Context, url string) (healthy bool, detail string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err.Error()
	}
	resp, err := insecureClient().Do(req)
	if err != nil {
		return false, "not answering yet"
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
	return resp.StatusCode == http.StatusOK, strings.TrimSpace(string(body))
}
