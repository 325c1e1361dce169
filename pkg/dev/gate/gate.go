// Package gate restricts the stand-ins of a development machine to that machine's own programs.
// Otherwise an open web page could make the browser send requests to any address, including
// loopback, and even read the answers by DNS rebinding.
package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
)

// NetworkFlag is the flag that makes Listen accept any address.
const NetworkFlag = "serve-network"

// NetworkUsage is the help of the flag.
const NetworkUsage = "allow a non-loopback --addr; traffic is not encrypted, and other machines can try keys"

// Keys returns the keys that callers of a stand-in sign with, from the environment.
func Keys(getenv func(string) string) (id, secret string, err error) {
	id, secret = getenv("AWS_ACCESS_KEY_ID"), getenv("AWS_SECRET_ACCESS_KEY")
	if id == "" || secret == "" {
		return "", "", errors.New("AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY: required: set any keys for callers to sign with")
	}
	return id, secret, nil
}

// Listen listens on a loopback address (host:port), or on any address if network is set.
func Listen(ctx context.Context, addr string, network bool) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("--addr: listen on %s: the port is in use by another process", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("--addr: listen on %q: %w", addr, err)
	}
	if at, ok := l.Addr().(*net.TCPAddr); !network && (!ok || !at.IP.IsLoopback()) {
		_ = l.Close() // nothing was accepted on it
		return nil, fmt.Errorf("--addr: %q is reachable from other machines: want an address such as 127.0.0.1:%d, or add --%s",
			addr, at.Port, NetworkFlag)
	}
	return l, nil
}

// Local wraps next and refuses requests sent by web pages, and requests whose Host is not this
// machine's: a loopback address, localhost, the address at which the request arrived, or the
// host of bound, the address (host:port) that was listened on; empty: none.
func Local(bound string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		here, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		switch {
		case !ours(r.Host, bound, here):
			http.Error(w, fmt.Sprintf("Host %.100q is not an address of this machine: want a loopback address such as 127.0.0.1", r.Host),
				http.StatusMisdirectedRequest)
		case page(r.Header):
			http.Error(w, "requests from web pages are refused: want no Origin and no cross-site Sec-Fetch-Site",
				http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ours reports whether a Host header names this machine by an address, which no web page has,
// or by the name it listens on.
func ours(header, bound string, here net.Addr) bool {
	host := hostOf(header)
	if host == "" {
		return false
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		tcp, ok := here.(*net.TCPAddr)
		return addr.Unmap().IsLoopback() || ok && tcp.AddrPort().Addr().Unmap().WithZone("") == addr.Unmap()
	}
	return strings.EqualFold(host, "localhost") || strings.EqualFold(host, hostOf(bound))
}

// hostOf returns the host of host:port, or of a plain host.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
}

// page reports whether a browser marks a request as sent by a page rather than by its user.
func page(h http.Header) bool {
	site := h.Get("Sec-Fetch-Site")
	return len(h.Values("Origin")) > 0 || site != "" && site != "none"
}
