package pki

import (
	"maps"
	"sync"
)

// issued counts the certificates that a CA has signed in this process.
type issued struct {
	mu sync.Mutex
	of map[string]uint64
}

func (i *issued) add(kind string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.of == nil {
		i.of = map[string]uint64{}
	}
	i.of[kind]++
}

// kindLeaf is the kind of the certificates in instances' files.
const kindLeaf = "file"

// Issued returns how many certificates this CA has signed in this process, by kind: the role
// that they are for, or "file" for those in instances' files.
func (ca *CA) Issued() map[string]uint64 {
	ca.issued.mu.Lock()
	defer ca.issued.mu.Unlock()
	return maps.Clone(ca.issued.of)
}
