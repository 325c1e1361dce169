package store

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"
)

// Lease is a time to live that keys share: they are deleted when it expires.
type Lease struct {
	ID    int64
	TTL   int64 // in seconds
	until time.Time
	keys  map[string]bool
}

func (l *Lease) line() line { return line{Lease: l.ID, TTL: l.TTL, Until: l.until} }

// restore applies a lease from the journal.
func (s *Store) restore(l line) {
	if l.TTL == 0 {
		delete(s.leases, l.Lease)
		return
	}
	s.leases[l.Lease] = &Lease{ID: l.Lease, TTL: l.TTL, until: l.Until, keys: map[string]bool{}}
}

// attach moves a key from its previous lease to its new one.
func (s *Store) attach(e, prev *Entry) {
	if prev != nil && s.leases[prev.Lease] != nil {
		delete(s.leases[prev.Lease].keys, e.Key)
	}
	if l := s.leases[e.Lease]; l != nil {
		l.keys[e.Key] = true
	}
}

// Grant creates a lease; id 0 means that the store chooses one.
func (s *Store) Grant(id, ttl int64) (Lease, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for id == 0 || s.leases[id] != nil {
		id = rand.Int64() //nolint:gosec // an unused number, not a secret
	}
	l := &Lease{ID: id, TTL: max(1, ttl), keys: map[string]bool{}}
	l.until = s.now().Add(time.Duration(l.TTL) * time.Second)
	if err := s.journal.add(l.line()); err != nil {
		return Lease{}, err
	}
	s.leases[id] = l
	return *l, nil
}

// KeepAlive renews a lease.
func (s *Store) KeepAlive(id int64) (Lease, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	l := s.leases[id]
	if l == nil {
		return Lease{}, ErrNoLease
	}
	l.until = s.now().Add(time.Duration(l.TTL) * time.Second)
	return *l, s.journal.add(l.line())
}

// Remaining returns a lease's remaining seconds and its keys.
func (s *Store) Remaining(id int64) (l Lease, seconds int64, keys []string, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	lease := s.leases[id]
	if lease == nil {
		return Lease{}, 0, nil, ErrNoLease
	}
	for key := range lease.keys {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return *lease, int64(lease.until.Sub(s.now()).Seconds()), keys, nil
}

// Revoke ends a lease and deletes its keys.
func (s *Store) Revoke(id int64) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.leases[id] == nil {
		return ErrNoLease
	}
	return s.end(id)
}

func (s *Store) end(id int64) error {
	for key := range s.leases[id].keys {
		if path, err := s.path(key); err == nil && path != "" {
			s.take(path) // an edit may have detached the key
		}
		if e := s.memory.now(key); e == nil || e.Lease != id {
			continue
		}
		if err := s.remove(key); err != nil {
			return err
		}
	}
	delete(s.leases, id)
	return s.journal.add(line{Lease: id})
}

// Expire ends expired leases.
func (s *Store) Expire() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	now := s.now()
	for id, l := range s.leases {
		if l.until.After(now) {
			continue
		}
		if err := s.end(id); err != nil {
			return err
		}
	}
	return nil
}

// expiring expires leases until ctx ends.
func (s *Store) expiring(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := s.Expire(); err != nil {
				s.log.Error("end a lease", slog.Any("error", err))
			}
		}
	}
}
