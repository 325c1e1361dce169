package shardtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// metadataAddr is the address of a machine's metadata service.
const metadataAddr = "169.254.169.254"

// cloud is the metadata service of one machine, like that of AWS. Safe for concurrent use.
type cloud struct {
	server *http.Server

	mu sync.Mutex
	at time.Time // when the machine is interrupted; zero: no notice
}

// token is the session token of every machine.
const token = "metadata"

// newCloud serves on the host until close.
func newCloud(ctx context.Context, h *Host) (*cloud, error) {
	l, err := h.Listen(ctx, ":80")
	if err != nil {
		return nil, err
	}
	c := &cloud{}
	c.server = &http.Server{Handler: http.HandlerFunc(c.answer), ReadHeaderTimeout: time.Minute}
	go func() { _ = c.server.Serve(l) }() // ends with Close
	return c, nil
}

func (c *cloud) close() { _ = c.server.Close() }

func (c *cloud) announce(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

func (c *cloud) answer(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	at := c.at
	c.mu.Unlock()
	switch {
	case r.URL.Path == "/latest/api/token":
		_, _ = io.WriteString(w, token)
	case r.Header.Get("X-aws-ec2-metadata-token") != token:
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path == "/latest/meta-data/instance-life-cycle":
		_, _ = io.WriteString(w, "spot")
	case r.URL.Path == "/latest/meta-data/spot/instance-action" && !at.IsZero():
		_, _ = fmt.Fprintf(w, `{"action": "terminate", "time": %q}`, at.UTC().Format(time.RFC3339))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// dial connects for a machine's agent. The link-local address is the machine's own.
func (m *machine) dial(ctx context.Context, addr string) (net.Conn, error) {
	if addr == metadataAddr+":80" {
		return m.host.Dial(ctx, m.inside+":80")
	}
	return m.host.Dial(ctx, addr)
}
