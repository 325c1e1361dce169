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

// journalFile holds what the files of the objects can't: revisions, leases, keys that
// are of no object, and what an object was before somebody edited it.
const journalFile = ".journal"

// line is one record of the journal: a version of a key, a lease, or a revision.
type line struct {
	Rev     int64           `json:"rev,omitempty"`
	Key     string          `json:"key,omitempty"`
	Create  int64           `json:"create,omitempty"`
	Version int64           `json:"version,omitempty"`
	Lease   int64           `json:"lease,omitempty"`
	JSON    json.RawMessage `json:"json,omitempty"` // the value, if it is compact JSON,
	Newline bool            `json:"newline,omitempty"`
	Bytes   []byte          `json:"bytes,omitempty"` // and if it is anything else

	TTL   int64     `json:"ttl,omitempty"` // of a lease, in seconds; 0: it is gone
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

// journal is a file to which one line is added after another.
type journal struct {
	path string
	file *os.File
	size int64
	base int64 // the size when it was written anew
}

// readJournal calls with each line. The last may be torn: it was never acknowledged.
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
			return fmt.Errorf("%s: %w: remove it, and all objects are read from their files", path, err)
		}
		each(l)
	}
}

// newJournal puts a journal with these lines in the place of the one before.
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
	e.SetEscapeHTML(false) // a value stays what it is, byte by byte
	return e
}

// add returns when the line is on disk.
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

// long reports whether most of it is of the past.
func (j *journal) long() bool { return j.size > 2*j.base+64<<20 }
