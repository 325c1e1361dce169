package server

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/server/identities"
)

// TestStandbys: the names and addresses of a server count while any stream of it is open, and a
// minute longer; those of this server always count.
func TestStandbys(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := standbys{now: func() time.Time { return now }}
	cert := &x509.Certificate{DNSNames: []string{"b.internal"}, IPAddresses: []net.IP{net.ParseIP("10.0.0.2")}}
	check := func(what string, want bool) {
		t.Helper()
		known := s.beside(identities.Servers{DNS: []string{"own.internal"}})
		if is := known.Name("b.internal"); is != want || known.Address(netip.MustParseAddr("10.0.0.2")) != want || !known.Name("own.internal") {
			t.Errorf("%s: %+v, want b: %t", what, known, want)
		}
	}
	check("before", false)
	first, second := s.join(cert), s.join(cert)
	now = now.Add(time.Hour)
	first()
	now = now.Add(time.Hour)
	check("one of two streams is open", true)
	second()
	now = now.Add(standbyGone - time.Second)
	check("just gone", true)
	again := s.join(cert)
	now = now.Add(time.Hour)
	check("connected again", true)
	again()
	now = now.Add(standbyGone)
	check("gone", false)
}

// TestManyStandbys: the memory is bounded, and free again once servers are gone.
func TestManyStandbys(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := standbys{now: func() time.Time { return now }}
	for n := range 2 * maxStandbys {
		s.join(&x509.Certificate{DNSNames: []string{fmt.Sprint("s", n)}})()
	}
	if n := len(s.beside(identities.Servers{}).DNS); n != maxStandbys {
		t.Errorf("%d names, want %d", n, maxStandbys)
	}
	now = now.Add(standbyGone)
	defer s.join(&x509.Certificate{DNSNames: []string{"later"}})()
	if known := s.beside(identities.Servers{}); len(known.DNS) != 1 || !known.Name("later") {
		t.Errorf("%+v, want the later one", known)
	}
}
