package gate_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"github.com/nstance/nstance/pkg/dev/gate"
)

// ask sends a request that arrives at an address of this machine, and returns the status.
func ask(t testing.TB, bound, here, host string, headers ...string) int {
	t.Helper()
	addr, err := net.ResolveTCPAddr("tcp", here)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(addr)))
	r.Host = host
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	gate.Local(bound, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
	if len(w.Header().Values("Access-Control-Allow-Origin")) > 0 {
		t.Errorf("%s: other sites may read it", host)
	}
	return w.Code
}

// TestHosts: addresses of this machine are accepted, and of names only localhost and the one that
// was listened on.
func TestHosts(t *testing.T) {
	const loopback, network = "127.0.0.1:8989", "192.0.2.7:8989"
	for _, c := range []struct {
		bound, here, host string
		want              int
	}{
		{loopback, loopback, "127.0.0.1:8989", 200},
		{loopback, loopback, "127.0.0.1", 200},
		{loopback, loopback, "127.9.9.9:1", 200},
		{loopback, "[::1]:8989", "[::1]:8989", 200},
		{loopback, "[::1]:8989", "[::1]", 200},
		{loopback, loopback, "[::ffff:127.0.0.1]:8989", 200},
		{loopback, loopback, "LocalHost:8989", 200},
		{":8989", network, "192.0.2.7:8989", 200},
		{":8989", "[::ffff:192.0.2.7]:8989", "192.0.2.7:8989", 200},
		{"box.example:8989", network, "box.example:8989", 200},
		{"box.example:8989", network, "Box.Example", 200},

		{loopback, loopback, "", 421},
		{loopback, loopback, "rebound.example:8989", 421},
		{loopback, loopback, "rebound.example", 421},
		{loopback, loopback, "127.0.0.1.example:8989", 421},
		{loopback, loopback, "localhost.example", 421},
		{loopback, loopback, "127.0.0.1@rebound.example", 421},
		{loopback, loopback, "127.1", 421},
		{loopback, loopback, "192.0.2.7", 421},
		{loopback, loopback, "0.0.0.0:8989", 421},
		{":8989", network, "192.0.2.8:8989", 421},
		{":8989", network, ":8989", 421},
		{"", loopback, "box.example", 421},
	} {
		if got := ask(t, c.bound, c.here, c.host); got != c.want {
			t.Errorf("Host %q on %s, bound to %q: %d, want %d", c.host, c.here, c.bound, got, c.want)
		}
	}
}

// TestPages: requests from web pages are refused, those of a browser's user are not.
func TestPages(t *testing.T) {
	const here = "127.0.0.1:8989"
	for _, c := range []struct {
		header, value string
		want          int
	}{
		{"Sec-Fetch-Site", "none", 200}, {"Sec-Fetch-Site", "cross-site", 403}, {"Sec-Fetch-Site", "same-site", 403},
		{"Sec-Fetch-Site", "same-origin", 403}, {"Origin", "null", 403}, {"Origin", "", 403}, {"Origin", "http://127.0.0.1:8989", 403},
	} {
		if got := ask(t, here, here, here, c.header, c.value); got != c.want {
			t.Errorf("%s: %s: %d, want %d", c.header, c.value, got, c.want)
		}
	}
}

// TestListen: an address that other machines can reach needs the flag.
func TestListen(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "localhost:0"} {
		l, err := gate.Listen(t.Context(), addr, false)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		taken := l.Addr().String()
		want := "--addr: listen on " + taken + ": the port is in use"
		if _, err := gate.Listen(t.Context(), taken, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s again: %v", taken, err)
		}
		l.Close()
	}
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		if _, err := gate.Listen(t.Context(), addr, false); err == nil || !strings.Contains(err.Error(), "--serve-network") {
			t.Errorf("%q: %v, want an error that names the flag", addr, err)
		}
		l, err := gate.Listen(t.Context(), addr, true)
		if err != nil {
			t.Errorf("%q with the flag: %v", addr, err)
			continue
		}
		l.Close()
	}
	if _, err := gate.Listen(t.Context(), "nonsense", false); err == nil || !strings.Contains(err.Error(), `--addr: listen on "nonsense"`) {
		t.Errorf("nonsense: %v", err)
	}
}

// FuzzHost: no name but localhost is accepted. An address with letters has several colons, which no
// name has.
func FuzzHost(f *testing.F) {
	for _, host := range []string{
		"127.0.0.1:1", "[::1]", "a.example", "127.0.0.1%", "[fe80::1%eth0]:1", "::1:2:3", "localhost:x:y", "fade.de:1",
	} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		named := strings.ContainsFunc(host, unicode.IsLetter) && strings.Count(host, ":") < 2
		if ask(t, "127.0.0.1:8989", "127.0.0.1:8989", host) == 200 && named && !strings.HasPrefix(strings.ToLower(host), "localhost") {
			t.Errorf("%q passes", host)
		}
	})
}
