package httpapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// Limits of connections.
const (
	headerTimeout  = 10 * time.Second
	answerTimeout  = 30 * time.Second // of a client, to accept an answer
	idleTimeout    = 2 * time.Minute
	shutdownPeriod = 10 * time.Second
	maxHeader      = 1 << 14 // bytes
)

// TLS says how the API is served with TLS.
type TLS struct {
	Cert, Key string // PEM files; empty: no TLS. They are read again when they change
	ClientCA  string // PEM file: clients need a certificate of one of these CAs; empty: they need none
}

// Listener listens at an address for an API.
type Listener struct {
	net.Listener
	tls *tls.Config
}

// Check returns what is wrong with how the API is to be served. Addresses that other machines
// can reach require an access with tokens, or certificates of clients.
func Check(bind string, access Access, t TLS) error {
	if _, _, err := net.SplitHostPort(bind); err != nil {
		return fmt.Errorf("--bind: %.80q is not valid: want host:port, such as 127.0.0.1:8080", bind)
	}
	if !Loopback(bind) && access.Full == nil && access.ReadOnly == nil && t.ClientCA == "" {
		return fmt.Errorf("--bind: other machines can reach %.80q: add --token-file, or --tls-cert, --tls-key and --client-ca, "+
			"or bind to 127.0.0.1", bind)
	}
	_, err := t.config()
	return err
}

// Listen listens at an address, for Serve.
func Listen(ctx context.Context, bind string, t TLS) (*Listener, error) {
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", bind)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--bind: another process listens at %s: stop it, or choose another port", bind)
	case err != nil:
		return nil, fmt.Errorf("--bind: %w", err)
	}
	if config != nil {
		return &Listener{tls.NewListener(l, config), config}, nil
	}
	return &Listener{l, nil}, nil
}

// Loopback reports whether only this machine can reach an address.
func Loopback(bind string) bool {
	host, _, err := net.SplitHostPort(bind)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// URL is where the API is served.
func (l *Listener) URL() string {
	if l.tls != nil {
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}

// Hosts returns the names of loopback, and the one that bind has.
func Hosts(bind string) []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if host := hostOf(bind); host != "" {
		if ip, err := netip.ParseAddr(host); err != nil || !ip.IsUnspecified() && !ip.IsLoopback() {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// serverLog logs what an HTTP server says. Any stranger can cause a handshake to fail, so that is
// no warning.
type serverLog struct{ logger *slog.Logger }

// Write implements io.Writer.
func (l serverLog) Write(p []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(p, []byte("http: TLS handshake error")) {
		level = slog.LevelDebug
	}
	return slog.NewLogLogger(l.logger.Handler(), level).Writer().Write(p)
}

// Serve serves the API until ctx ends. Requests under way are finished, up to a limit; streams
// end.
func (a *API) Serve(ctx context.Context, l *Listener) error {
	server := &http.Server{
		Handler: a, ReadHeaderTimeout: headerTimeout, ReadTimeout: a.cfg.Timeout + answerTimeout, WriteTimeout: a.cfg.Timeout + answerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader, ErrorLog: log.New(serverLog{a.cfg.Logger}, "", 0),
	}
	defer a.Close()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve at %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	a.Close()
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownPeriod)
	defer cancel()
	if err := server.Shutdown(within); err != nil {
		_ = server.Close()
		return fmt.Errorf("requests were still under way after %s", shutdownPeriod)
	}
	return nil
}

// config returns the TLS config, or nil.
func (t TLS) config() (*tls.Config, error) {
	switch {
	case t == TLS{}:
		return nil, nil
	case t.Cert == "":
		return nil, errors.New("--tls-cert: required with --tls-key and --client-ca")
	case t.Key == "":
		return nil, errors.New("--tls-key: required with --tls-cert")
	}
	files := &tlsFiles{TLS: t}
	if _, err := files.current(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.current() },
	}, nil
}

// tlsFiles reads the files of a TLS again when one of them changes.
type tlsFiles struct {
	TLS

	mu     sync.Mutex
	stamps [3]stamp
	config *tls.Config
}

// current returns the config of the files as they are now; the last valid one while they
// are not valid.
func (f *tlsFiles) current() (*tls.Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var now [3]stamp
	for n, path := range []string{f.Cert, f.Key, f.ClientCA} {
		if info, err := os.Stat(path); err == nil {
			now[n] = stamp{info.Size(), info.ModTime(), info.Mode()}
		}
	}
	if f.config != nil && now == f.stamps {
		return f.config, nil
	}
	config, err := f.read()
	if err != nil {
		if f.config != nil {
			return f.config, nil
		}
		return nil, err
	}
	f.stamps, f.config = now, config
	return config, nil
}

func (f *tlsFiles) read() (*tls.Config, error) {
	key, err := readPrivate(f.Key)
	if err != nil {
		return nil, fmt.Errorf("--tls-key: %w", err)
	}
	cert, err := os.ReadFile(f.Cert)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %s with the key %s: %w", f.Cert, f.Key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if f.ClientCA == "" {
		return config, nil
	}
	text, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("--client-ca: %w", err)
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--client-ca: %s has no certificate: want CAs as PEM", f.ClientCA)
	}
	return config, nil
}
