package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
)

// ErrNotRunning means that no supervisor runs.
var ErrNotRunning = errors.New("no development stack runs here")

// Client calls a running supervisor.
type Client struct{ http *http.Client }

// NewClient returns a client for the stack in a folder.
func NewClient(temp string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket(temp))
	}
	return &Client{http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Status returns the stack's status.
func (c *Client) Status(ctx context.Context) (Report, error) {
	body, err := c.call(ctx, http.MethodGet, "/status")
	if err != nil {
		return Report{}, err
	}
	var r Report
	if err := json.Unmarshal(body, &r); err != nil {
		return Report{}, fmt.Errorf("read the stack's status: %w", err)
	}
	return r, nil
}

// Start starts a component that was stopped.
func (c *Client) Start(ctx context.Context, name string) error {
	_, err := c.call(ctx, http.MethodPost, "/start/"+name)
	return err
}

// Stop stops a component until Start; kill does it with SIGKILL.
func (c *Client) Stop(ctx context.Context, name string, kill bool) error {
	path := "/stop/" + name
	if kill {
		path += "?signal=KILL"
	}
	_, err := c.call(ctx, http.MethodPost, path)
	return err
}

// Shutdown makes the supervisor stop everything, and itself.
func (c *Client) Shutdown(ctx context.Context) error {
	_, err := c.call(ctx, http.MethodPost, "/shutdown")
	return err
}

func (c *Client) call(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://stack"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
			return nil, ErrNotRunning
		}
		return nil, fmt.Errorf("ask the supervisor: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("ask the supervisor: %w", err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("supervisor: %s", strings.TrimSpace(string(body)))
	}
	return body, nil
}
