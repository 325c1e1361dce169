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

// KeyRequest asks an agent for a key.
type KeyRequest struct {
	Name      string
	Algorithm string // fleet.KeyEd25519 or fleet.KeyECDSAP256
}

// ErrNoKeyStream is the error of keys that nobody asked for, because no key
// stream is open.
var ErrNoKeyStream = errors.New("no key stream is open: open one and submit the keys that it asks for")

// maxPublicKey is the longest public key that is taken, in bytes: several times
// that of ECDSA on P-256 in PEM.
const maxPublicKey = 1024

// keyRequests lists the keys that a group's files need, in the order of names.
func keyRequests(g fleet.Group) []KeyRequest {
	var out []KeyRequest
	for _, f := range g.Files {
		if f.Kind != kindCertificate || f.Key == nil {
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

// Submit takes the public keys of an instance, PEM by name: those that its key
// stream asked for, or asked for before the last change, which are not needed any
// more. All are taken or, with an error that says which is wrong, none: KeysInUse if
// other instances have some. They last as long as the key stream.
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
			s.take(keys)
		}
	})
	return nil
}

// KeysInUse are the names of submitted keys that other instances have, sorted.
type KeysInUse []string

// Error implements error.
func (e KeysInUse) Error() string {
	return "keys of other instances: " + strings.Join(e, ", ")
}

// claim makes the keys the instance's, all or none.
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

// fingerprint is a key's as records have it.
func fingerprint(k pki.LeafKey) string { return hex.EncodeToString(k.SHA256[:]) }

// parseKeys reads the keys that an agent sent.
func parseKeys(texts map[string]string, asked, formerly []KeyRequest) (map[string]pki.LeafKey, error) {
	if len(texts) > files.MaxFiles {
		return nil, fmt.Errorf("%d public keys: at most %d are taken", len(texts), files.MaxFiles)
	}
	keys := make(map[string]pki.LeafKey, len(texts))
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		r, ok := find(asked, name)
		if _, before := find(formerly, name); !ok && before {
			continue
		} else if !ok {
			return nil, fmt.Errorf("public_keys: nobody asked for a key %.80q", name)
		}
		if len(texts[name]) > maxPublicKey {
			return nil, fmt.Errorf("public_keys[%q]: %d bytes: at most %d are taken", name, len(texts[name]), maxPublicKey)
		}
		key, err := pki.ParseLeafKey([]byte(texts[name]))
		if err != nil {
			return nil, fmt.Errorf("public_keys[%q]: %w", name, err)
		}
		if have := algorithmOf(key); have != r.Algorithm {
			return nil, fmt.Errorf("public_keys[%q]: a key of %s: want %s", name, have, r.Algorithm)
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
		return "another algorithm"
	}
}

// take keeps keys that are still asked for.
func (s *session) take(keys map[string]pki.LeafKey) {
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

// ask makes requests what the key stream asks for, and reports whether there is
// anything to say about it.
func (s *session) ask(requests []KeyRequest, of string) bool {
	s.formerly, s.asked, s.askedOf = s.asked, requests, of
	for name, key := range s.submitted {
		if r, ok := find(requests, name); !ok || r.Algorithm != algorithmOf(key) {
			delete(s.submitted, name)
			delete(s.sums, name)
		}
	}
	return !slices.Equal(s.formerly, requests)
}
