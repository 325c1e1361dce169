package delivery

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
)

// KeyRequest requests a key from an agent.
type KeyRequest struct {
	Name      string
	Algorithm string // fleet.KeyEd25519 or fleet.KeyECDSAP256
}

// ErrNoKeyStream is returned for keys that were not requested, because no key stream is open.
var ErrNoKeyStream = errors.New("no key stream is open: open one and submit the keys that it requests")

// maxPublicKey is the maximum length of a public key in bytes: several times that of an ECDSA
// P-256 key in PEM.
const maxPublicKey = 1024

// HasCertificates reports whether any of a group's files is a certificate.
func HasCertificates(g fleet.Group) bool {
	for _, f := range g.Files {
		if f.Kind == KindCertificate {
			return true
		}
	}
	return false
}

// keyRequests returns the keys that a group's files need, sorted by name.
func keyRequests(g fleet.Group) []KeyRequest {
	var out []KeyRequest
	for _, f := range g.Files {
		if f.Kind != KindCertificate || f.Key == nil {
			continue
		}
		r := KeyRequest{Name: f.Key.Name, Algorithm: f.Key.Algorithm}
		if r.Algorithm == "" {
			r.Algorithm = fleet.KeyEd25519
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b KeyRequest) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Algorithm, b.Algorithm))
	})
	return slices.CompactFunc(out, func(a, b KeyRequest) bool { return a.Name == b.Name })
}

// Submit accepts the public keys of an instance, PEM by name. Keys requested before the last
// change, and no longer needed, are ignored. All keys are accepted, or none and the error says
// which one is wrong; it is KeysInUse if other instances have some of them. Keys are kept as
// long as the key stream is open.
func (d *Delivery) Submit(id fleet.InstanceID, texts map[string]string) error {
	d.mu.Lock()
	s := d.sessions[id]
	if s == nil || s.keys == nil {
		d.mu.Unlock()
		return ErrNoKeyStream
	}
	stream, asked, formerly := s.keys, s.asked, s.formerly
	d.mu.Unlock()
	keys, err := parseKeys(texts, asked, formerly)
	if err != nil {
		return err
	}
	if err := d.claim(id, keys); err != nil {
		return err
	}
	d.with(id, func(s *session) {
		if s.keys == stream {
			s.acceptKeys(keys)
		}
	})
	return nil
}

// KeysInUse are the sorted names of submitted keys that other instances have.
type KeysInUse []string

// Error implements error.
func (e KeysInUse) Error() string {
	return "keys of other instances: " + strings.Join(e, ", ")
}

// claim assigns the keys to the instance, all or none.
func (d *Delivery) claim(id fleet.InstanceID, keys map[string]pki.LeafKey) error {
	names := slices.Sorted(maps.Keys(keys))
	fingerprints := make([]string, len(names))
	for n, name := range names {
		fingerprints[n] = fingerprint(keys[name])
	}
	taken := d.cfg.Claim(id, fingerprints)
	if len(taken) == 0 {
		return nil
	}
	var inUse KeysInUse
	for n, name := range names {
		if slices.Contains(taken, fingerprints[n]) {
			inUse = append(inUse, name)
		}
	}
	return inUse
}

// fingerprint returns a key's fingerprint in the format of records.
func fingerprint(k pki.LeafKey) string { return hex.EncodeToString(k.SHA256[:]) }

// parseKeys parses submitted keys.
func parseKeys(texts map[string]string, asked, formerly []KeyRequest) (map[string]pki.LeafKey, error) {
	if len(texts) > files.MaxFiles {
		return nil, fmt.Errorf("%d public keys: at most %d are allowed", len(texts), files.MaxFiles)
	}
	keys := make(map[string]pki.LeafKey, len(texts))
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		r, ok := find(asked, name)
		if _, before := find(formerly, name); !ok && before {
			continue
		} else if !ok {
			return nil, fmt.Errorf("public_keys: key %.80q was not requested", name)
		}
		if len(texts[name]) > maxPublicKey {
			return nil, fmt.Errorf("public_keys[%q]: %d bytes: at most %d are allowed", name, len(texts[name]), maxPublicKey)
		}
		key, err := pki.ParseLeafKey([]byte(texts[name]))
		if err != nil {
			return nil, fmt.Errorf("public_keys[%q]: %w", name, err)
		}
		if have := algorithmOf(key); have != r.Algorithm {
			return nil, fmt.Errorf("public_keys[%q]: key algorithm %s: want %s", name, have, r.Algorithm)
		}
		keys[name] = key
	}
	return keys, nil
}

func find(requests []KeyRequest, name string) (KeyRequest, bool) {
	n, ok := slices.BinarySearchFunc(requests, name, func(r KeyRequest, name string) int { return cmp.Compare(r.Name, name) })
	if !ok {
		return KeyRequest{}, false
	}
	return requests[n], true
}

func algorithmOf(k pki.LeafKey) string {
	switch k.Public.(type) {
	case ed25519.PublicKey:
		return fleet.KeyEd25519
	case *ecdsa.PublicKey:
		return fleet.KeyECDSAP256
	default:
		return "unknown"
	}
}

// acceptKeys stores keys that are still requested.
func (s *session) acceptKeys(keys map[string]pki.LeafKey) {
	for name, key := range keys {
		if r, ok := find(s.asked, name); !ok || r.Algorithm != algorithmOf(key) {
			continue
		}
		if s.submitted == nil {
			s.submitted, s.sums = map[string]pki.LeafKey{}, map[string]Sum{}
		}
		s.submitted[name], s.sums[name] = key, Sum(key.SHA256)
	}
}

// setRequests sets the requests of the key stream, and reports whether they must be sent.
func (s *session) setRequests(requests []KeyRequest, of string) bool {
	s.formerly, s.asked, s.askedOf = s.asked, requests, of
	for name, key := range s.submitted {
		if r, ok := find(requests, name); !ok || r.Algorithm != algorithmOf(key) {
			delete(s.submitted, name)
			delete(s.sums, name)
		}
	}
	return !slices.Equal(s.formerly, requests)
}
