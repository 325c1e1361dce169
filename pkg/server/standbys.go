package server

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/server/identities"
)

// standbyGone is how long the names of a server count after its last stream: it may only be
// restarting. It is less than an instance has to register, since the provider may give the address
// of a server that is gone to an instance.
const standbyGone = time.Minute

// maxStandbys bounds the memory of a server that the others reach with ever new certificates.
const maxStandbys = 64

// standbys has the names and addresses of the shard's servers that follow this one, from the
// certificates of their streams. Safe for concurrent use.
type standbys struct {
	now func() time.Time

	mu    sync.Mutex
	known map[string]*standby // by names and addresses
}

type standby struct {
	identities.Servers
	streams int
	left    time.Time // when the last stream ended
}

// follow records the caller's names while next serves its stream. The handshake has verified
// that it is a server of the shard.
func (s *standbys) follow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			defer s.join(r.TLS.PeerCertificates[0])()
		}
		next.ServeHTTP(w, r)
	})
}

func (s *standbys) join(cert *x509.Certificate) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	key := fmt.Sprint(cert.DNSNames, cert.IPAddresses)
	one := s.known[key]
	if one == nil {
		if len(s.known) >= maxStandbys {
			return func() {}
		}
		one = &standby{Servers: identities.Servers{DNS: cert.DNSNames}}
		for _, ip := range cert.IPAddresses {
			if addr, ok := netip.AddrFromSlice(ip); ok {
				one.IPs = append(one.IPs, addr.Unmap())
			}
		}
		if s.known == nil {
			s.known = map[string]*standby{}
		}
		s.known[key] = one
	}
	one.streams++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		one.streams--
		one.left = s.now()
	}
}

// count returns how many servers follow this one now.
func (s *standbys) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, one := range s.known {
		n += one.streams
	}
	return n
}

// expire drops servers that are gone. The caller holds mu.
func (s *standbys) expire() {
	for key, one := range s.known {
		if one.streams == 0 && s.now().Sub(one.left) >= standbyGone {
			delete(s.known, key)
		}
	}
}

// beside returns own with the names and addresses of the standbys.
func (s *standbys) beside(own identities.Servers) identities.Servers {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	for _, one := range s.known {
		own = own.And(one.Servers)
	}
	return own
}
