package delivery

import (
	"cmp"
	"crypto/sha256"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/fleet"
)

// Sum is a SHA-256 digest.
type Sum [sha256.Size]byte

// Set is the desired files of an instance.
type Set struct {
	Hash  string   // of the group's definition
	Files []Wanted // sorted by name

	size int64 // bytes of all contents except certificates
	from origin
}

// origin is what the contents of a set, except certificates, secrets and objects, were rendered from; empty
// if that is not known.
type origin struct {
	files map[string]fleet.File // shared by the instances of a group
	facts config.Facts
}

// Wanted is one file of a set.
type Wanted struct {
	Name string
	// Sum is the digest of the content. For a certificate, whose content differs with each
	// issue, it is the digest of its request.
	Sum Sum
	Key string        // of a certificate: the name of its key; otherwise empty
	TTL time.Duration // of a certificate: its lifetime
	// Left: the instance may no longer get this file, and keeps the one that it has.
	Left bool

	size int // of the content, in bytes; 0 for a certificate
}

// wanted returns a file of the set; ok is false if it has none of that name.
func (s *Set) wanted(name string) (f Wanted, ok bool) {
	n, ok := slices.BinarySearchFunc(s.Files, name, func(f Wanted, name string) int { return cmp.Compare(f.Name, name) })
	if !ok {
		return Wanted{}, false
	}
	return s.Files[n], true
}

// names returns the names of the whole set, without left files that are not on the machine,
// since they are not sent.
func (s *Set) names(report *FileReport) []string {
	out := make([]string, 0, len(s.Files))
	cut := false // a long report is truncated
	for f, st := range s.in(report) {
		cut = cut || report.ConfigHash != "" && !f.Left && st == nil
	}
	for f, st := range s.in(report) {
		if !f.Left || st != nil && st.SHA256 != (Sum{}) || cut && st == nil {
			out = append(out, f.Name)
		}
	}
	return out
}

// in returns the files of the set with their status in a tidy report: nil if it does not contain the file.
func (s *Set) in(report *FileReport) iter.Seq2[*Wanted, *FileStatus] {
	return func(yield func(*Wanted, *FileStatus) bool) {
		at := 0
		for n := range s.Files {
			for at < len(report.Files) && report.Files[at].Name < s.Files[n].Name {
				at++
			}
			var st *FileStatus
			if at < len(report.Files) && report.Files[at].Name == s.Files[n].Name {
				st = &report.Files[at]
			}
			if !yield(&s.Files[n], st) {
				return
			}
		}
	}
}

// id identifies a set.
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

// FileState is the state of a file according to the agent.
type FileState int

// The states of a file. A file that is not in a report is Missing.
const (
	Missing FileState = iota
	Present
	Failed
)

// FileStatus is one file of a report.
type FileStatus struct {
	Name      string
	State     FileState
	Error     string    // set if failed
	SHA256    Sum       // of the content on disk
	NotAfter  time.Time // of a certificate
	PublicKey Sum       // of a certificate: digest of its key's PKIX DER
}

// FileReport is an agent's report on its files. It is untrusted, except that it concerns the
// agent's own instance.
type FileReport struct {
	ConfigHash string
	Files      []FileStatus
}

// Maximum lengths of reported config hashes and errors that are kept, in bytes.
const (
	maxHash  = 128
	maxError = 512
)

// tidy returns the report sorted by name, without duplicates, and bounded in size.
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

// file returns the status of a file in a tidy report.
func (r *FileReport) file(name string) FileStatus {
	n, ok := slices.BinarySearchFunc(r.Files, name, func(f FileStatus, name string) int { return cmp.Compare(f.Name, name) })
	if !ok {
		return FileStatus{Name: name}
	}
	return r.Files[n]
}

// failed returns the first file that the agent failed to write, or nil.
func (r *FileReport) failed() *FileStatus {
	n := slices.IndexFunc(r.Files, func(f FileStatus) bool { return f.State == Failed })
	if n < 0 {
		return nil
	}
	return &r.Files[n]
}
