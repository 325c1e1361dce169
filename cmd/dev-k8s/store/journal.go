package store

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// journalFile holds what the objects' files can't: revisions, leases, keys that are not
// objects, and objects as they were before an edit.
const journalFile = ".journal"

// line is a record of the journal: a version of a key, a lease, or a revision.
type line struct {
	Rev     int64           `json:"rev,omitempty"`
	Key     string          `json:"key,omitempty"`
	Create  int64           `json:"create,omitempty"`
	Version int64           `json:"version,omitempty"`
	Lease   int64           `json:"lease,omitempty"`
	JSON    json.RawMessage `json:"json,omitempty"` // the value, if it is compact JSON
	Newline bool            `json:"newline,omitempty"`
	Bytes   []byte          `json:"bytes,omitempty"` // the value otherwise

	TTL   int64     `json:"ttl,omitempty"` // of a lease, in seconds; 0: revoked
	Until time.Time `json:"until,omitzero"`
}

func lineOf(e *Entry) line {
	l := line{Rev: e.Mod, Key: e.Key, Create: e.Create, Version: e.Version, Lease: e.Lease}
	text, newline := bytes.CutSuffix(e.Value, []byte("\n"))
	if compact, err := compactJSON(text); err == nil && bytes.Equal(compact, text) {
		l.JSON, l.Newline = text, newline
	} else {
		l.Bytes = e.Value
	}
	return l
}

func (l line) entry() *Entry {
	value := l.Bytes
	if l.JSON != nil {
		value = l.JSON
	}
	if l.Newline {
		value = append(value, '\n')
	}
	return &Entry{Key: l.Key, Value: value, Create: l.Create, Mod: l.Rev, Version: l.Version, Lease: l.Lease}
}

func compactJSON(text []byte) ([]byte, error) {
	var b bytes.Buffer
	err := json.Compact(&b, text)
	return b.Bytes(), err
}

// journal is an append-only file of lines.
type journal struct {
	path string
	file *os.File
	size int64
	base int64 // the size when it was last rewritten
}

// readJournal calls each with every line. The last may be torn: it was never acknowledged.
func readJournal(path string, each func(line)) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for r := bufio.NewReaderSize(f, 1<<20); ; {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("%s: %w: remove it to reload all objects from their files", path, err)
		}
		each(l)
	}
}

// newJournal replaces the journal by one with these lines.
func newJournal(path string, lines []line) (*journal, error) {
	next := path + ".next"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{path: path, file: f}
	w := bufio.NewWriterSize(f, 1<<20)
	encoder := encoderTo(w)
	for _, l := range lines {
		if err = encoder.Encode(l); err != nil {
			break
		}
	}
	if err = errors.Join(err, w.Flush(), f.Sync()); err == nil {
		err = os.Rename(next, path)
	}
	if err == nil {
		j.size, err = f.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	j.base = j.size
	return j, nil
}

func encoderTo(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // values are kept byte for byte
	return e
}

// add appends a line and returns when it is on disk.
func (j *journal) add(l line) error {
	var b bytes.Buffer
	if err := encoderTo(&b).Encode(l); err != nil {
		return err
	}
	n, err := j.file.WriteAt(b.Bytes(), j.size)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		// A torn line must not become the beginning of the next.
		return errors.Join(fmt.Errorf("write %s: %w", j.path, err), j.file.Truncate(j.size))
	}
	j.size += int64(n)
	return nil
}

// long reports whether the journal should be compacted.
func (j *journal) long() bool { return j.size > 2*j.base+64<<20 }
