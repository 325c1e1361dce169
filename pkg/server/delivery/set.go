package delivery

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/files"
)

// Sum is a SHA-256.
type Sum [sha256.Size]byte

// Set is what an instance is to have.
type Set struct {
	Hash  string   // of the group's definition
	Files []Wanted // in the order of their names

	size int64 // bytes of all contents but certificates
}

// Wanted is one file of a set.
type Wanted struct {
	Name string
	// Sum is of the content. Of a certificate, whose content differs with each
	// issue, it is of what the certificate is to say.
	Sum Sum
	Key string        // of a certificate: the name of its key; else empty
	TTL time.Duration // of a certificate: its life
}

// names are those of the whole set.
func (s *Set) names() []string {
	out := make([]string, len(s.Files))
	for n, f := range s.Files {
		out[n] = f.Name
	}
	return out
}

// id tells sets apart.
func (s *Set) id() Sum {
	h := sha256.New()
	h.Write([]byte(s.Hash))
	for _, f := range s.Files {
		h.Write([]byte{0})
		h.Write([]byte(f.Name))
		h.Write(f.Sum[:])
	}
	return Sum(h.Sum(nil))
}

// FileState is what an agent says of a file.
type FileState int

// The states of a file. What an agent does not speak of is Missing.
const (
	Missing FileState = iota
	Present
	Failed
)

// FileStatus is what an agent says of one file.
type FileStatus struct {
	Name      string
	State     FileState
	Error     string    // of a failed one
	SHA256    Sum       // of the content on disk
	NotAfter  time.Time // of a certificate
	PublicKey Sum       // of a certificate: of its key's PKIX DER
}

// FileReport is what an agent says of its files. It is not to be trusted further
// than that it concerns the agent's own instance.
type FileReport struct {
	ConfigHash string
	Files      []FileStatus
}

// The longest config hash and error that are kept of what an agent says, in bytes.
const (
	maxHash  = 128
	maxError = 512
)

// tidy returns what is worth keeping of a report: in the order of the names, each
// once, and bounded.
func (r FileReport) tidy() *FileReport {
	out := FileReport{ConfigHash: strings.Clone(r.ConfigHash[:min(len(r.ConfigHash), maxHash)])}
	if len(r.Files) > 0 {
		all := slices.Clone(r.Files[:min(len(r.Files), files.MaxFiles)])
		slices.SortFunc(all, func(a, b FileStatus) int { return cmp.Compare(a.Name, b.Name) })
		all = slices.CompactFunc(all, func(a, b FileStatus) bool { return a.Name == b.Name })
		out.Files = slices.DeleteFunc(all, func(f FileStatus) bool { return files.CheckName(f.Name) != nil })
		for n := range out.Files {
			e := &out.Files[n].Error
			*e = strings.Clone((*e)[:min(len(*e), maxError)])
		}
	}
	return &out
}

// file finds what a tidy report says of a file.
func (r *FileReport) file(name string) FileStatus {
	n, ok := slices.BinarySearchFunc(r.Files, name, func(f FileStatus, name string) int { return cmp.Compare(f.Name, name) })
	if !ok {
		return FileStatus{Name: name}
	}
	return r.Files[n]
}

// failed returns the first file that the agent could not take over; nil: none.
func (r *FileReport) failed() *FileStatus {
	n := slices.IndexFunc(r.Files, func(f FileStatus) bool { return f.State == Failed })
	if n < 0 {
		return nil
	}
	return &r.Files[n]
}
