package agents

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Streams returns the number of instances with open streams.
func (s *Service) Streams() int { return s.cuts.size() }

// Connected reports whether an instance has an open stream. Safe for concurrent use.
func (s *Service) Connected(id fleet.InstanceID) bool { return s.cuts.has(id) }

// CertificateExpires returns when the newest certificate of an instance expires that its health stream was
// opened with, or that it got since; zero if no stream is open. Safe for concurrent use.
func (s *Service) CertificateExpires(id fleet.InstanceID) time.Time { return s.sessions.expires(id) }

func (s *sessions) expires(id fleet.InstanceID) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[id]; p != nil && p.current != nil {
		return p.current.expires
	}
	return time.Time{}
}

// renewed notes that an instance got a certificate.
func (s *sessions) renewed(id fleet.InstanceID, expires time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[id]; p != nil && p.current != nil {
		p.current.expires = expires
	}
}

func (c *cuts) has(id fleet.InstanceID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[id] != nil
}

func (c *cuts) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
