package election

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// LeaderPath is the path of Elector.Handler.
const LeaderPath = "/leader"

// These errors say something about the peer of a closed connection. Test with errors.Is; any
// other error, in particular a timeout, says nothing.
var (
	ErrRefused = errors.New("peer address refuses connections")
	ErrClosed  = errors.New("peer closed the connection")
)

// Dialer connects to other servers.
type Dialer interface {
	// Dial requests /leader. It returns once the response starts. ctx bounds the whole stream,
	// not only the dialing.
	Dial(ctx context.Context, addr string) (Stream, error)
	// Answer posts to /ready, and returns once it was accepted or refused.
	Answer(ctx context.Context, addr string, a Answer) error
}

// Stream is one connection. Next is called by one goroutine; Close may be called concurrently
// and ends it.
type Stream interface {
	// Next blocks for the next line. ErrClosed means that the peer closed the connection.
	Next() (Line, error)
	Close() error
}

type httpDialer struct {
	client *http.Client
	scheme string
}

// NewHTTPDialer dials over HTTP/1.1 with the given TLS configuration, one
// connection per stream, so that a stream ends exactly when its connection does.
// A nil configuration means plain HTTP. A host that vanished is noticed after 14 s.
func NewHTTPDialer(config *tls.Config) Dialer {
	tcp := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3,
	}}
	return NewHTTPDialerOver(func(ctx context.Context, addr string) (net.Conn, error) {
		return tcp.DialContext(ctx, "tcp", addr)
	}, config)
}

// NewHTTPDialerOver is NewHTTPDialer with a custom dial. Its connections must report refusal and
// reset as an errno, as those of package net do.
func NewHTTPDialerOver(dial func(ctx context.Context, addr string) (net.Conn, error), config *tls.Config) Dialer {
	d := httpDialer{scheme: "http"}
	if config != nil {
		config = config.Clone()
		config.NextProtos = []string{"http/1.1"}
		d.scheme = "https"
	}
	d.client = &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
				return dial(ctx, addr)
			},
			TLSClientConfig:        config,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxRecordBytes,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return d
}

// Dial implements Dialer.
func (d httpDialer) Dial(ctx context.Context, addr string) (Stream, error) {
	u := url.URL{Scheme: d.scheme, Host: addr, Path: LeaderPath}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("dial peer %s: %w", addr, err)
	}
	res, err := d.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("dial peer %s: %w", addr, classify(err))
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("dial peer %s: answered %s", addr, res.Status)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxRecordBytes)
	return &httpStream{addr: addr, body: res.Body, lines: lines}, nil
}

// Answer implements Dialer.
func (d httpDialer) Answer(ctx context.Context, addr string, a Answer) error {
	body, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("answer %s: %w", addr, err)
	}
	u := url.URL{Scheme: d.scheme, Host: addr, Path: ReadyPath}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("answer %s: %w", addr, err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := d.client.Do(req)
	if err != nil {
		return fmt.Errorf("answer %s: %w", addr, classify(err))
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		return fmt.Errorf("answer %s: answered %s", addr, res.Status)
	}
	return nil
}

type httpStream struct {
	addr  string
	body  io.ReadCloser
	lines *bufio.Scanner
}

func (s *httpStream) Next() (Line, error) {
	if s.lines.Scan() {
		return ParseLine(s.lines.Bytes())
	}
	err := s.lines.Err()
	if err == nil {
		err = io.EOF
	}
	return Line{}, fmt.Errorf("read from peer %s: %w", s.addr, classify(err))
}

func (s *httpStream) Close() error { return s.body.Close() }

// classify adds ErrRefused or ErrClosed if err implies it. The operating system's own timeouts
// (ETIMEDOUT, no route) are left as they are.
func classify(err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}
