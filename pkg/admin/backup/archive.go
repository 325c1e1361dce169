package backup

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/object"
)

// The first entry of a backup. A later format has another text.
const (
	markName = "nstance-backup"
	markText = "1\n"
)

// writer writes the file of a backup.
type writer struct {
	zip *gzip.Writer
	tar *tar.Writer
}

func newWriter(w io.Writer) (*writer, error) {
	z := gzip.NewWriter(w)
	out := &writer{zip: z, tar: tar.NewWriter(z)}
	return out, out.add(object.Object{Info: object.Info{Key: markName}, Body: []byte(markText)})
}

func (w *writer) add(o object.Object) error {
	err := w.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: o.Key, Size: int64(len(o.Body)), Mode: 0o600, ModTime: o.ModTime, Format: tar.FormatPAX,
	})
	if err == nil {
		_, err = w.tar.Write(o.Body)
	}
	return err
}

func (w *writer) close() error { return errors.Join(w.tar.Close(), w.zip.Close()) }

// Objects are the bodies of a backup's objects, by key.
type Objects map[string][]byte

// errNoBackup is the error of a file that is no backup.
var errNoBackup = errors.New("not a backup: want a file that `nstance-admin cluster backup` made")

// Read reads a backup into memory. A file that is not complete is an error, and so is one with anything else than objects.
func Read(r io.Reader) (Objects, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoBackup, err)
	}
	t := tar.NewReader(z)
	if err := readMark(t); err != nil {
		return nil, err
	}
	all, left := Objects{}, int64(maxBackup)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, incomplete(err)
		}
		if err := all.accepts(h, left); err != nil {
			return nil, err
		}
		left -= h.Size
		if all[h.Name], err = io.ReadAll(t); err != nil {
			return nil, incomplete(err)
		}
	}
	if err := readEnd(z); err != nil {
		return nil, err
	}
	if _, has := all[caCertificate]; !has {
		return nil, fmt.Errorf("%w: it has no %s", errNoBackup, caCertificate)
	}
	return all, nil
}

// readMark reads the first entry.
func readMark(t *tar.Reader) error {
	h, err := t.Next()
	if err != nil || h.Name != markName {
		return errNoBackup
	}
	text, err := io.ReadAll(io.LimitReader(t, 100))
	switch {
	case err != nil:
		return incomplete(err)
	case string(text) != markText:
		return fmt.Errorf("a backup of format %q, of a later version: this one reads format %q", text, markText)
	}
	return nil
}

// readEnd reads what follows the last entry, zeros and the checksum of the whole.
func readEnd(r io.Reader) error {
	rest := make([]byte, 4096)
	for {
		n, err := r.Read(rest)
		if slices.ContainsFunc(rest[:n], func(b byte) bool { return b != 0 }) {
			return fmt.Errorf("%w: there is more behind its end", errNoBackup)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return incomplete(err)
		}
	}
}

func incomplete(err error) error {
	return fmt.Errorf("the backup is damaged or not complete, and nothing of it is used: %w", err)
}

// accepts checks the next entry; left is how many bytes may follow.
func (o Objects) accepts(h *tar.Header, left int64) error {
	_, twice := o[h.Name]
	switch {
	case h.Typeflag != tar.TypeReg:
		return fmt.Errorf("%w: %q is not a regular file", errNoBackup, h.Name)
	case object.CheckKey(h.Name) != nil:
		return fmt.Errorf("%w: %w", errNoBackup, object.CheckKey(h.Name))
	case own(h.Name), h.Name == markName:
		return fmt.Errorf("%w: it has %q, which is in no backup", errNoBackup, h.Name)
	case twice:
		return fmt.Errorf("%w: it has %q twice", errNoBackup, h.Name)
	}
	return checkSize(h.Name, h.Size, left)
}

// checkSize checks the size of an object of a backup; left is how many bytes may follow.
func checkSize(key string, size, left int64) error {
	switch {
	case size > maxObject:
		return fmt.Errorf("%s has %d bytes: objects of a backup may have %d. Nstance writes none as large: move it out of the storage",
			key, size, maxObject)
	case size > left:
		return fmt.Errorf("the objects have more than %d bytes, the most that a backup takes: at %s", int64(maxBackup), key)
	}
	return nil
}

// Parts returns the parts of the objects, in order.
func (o Objects) Parts() []string {
	parts := map[string]bool{}
	for key := range o {
		parts[Part(key)] = true
	}
	return order(slices.Collect(maps.Keys(parts)))
}

// Shards returns the shards that the objects belong to, sorted.
func (o Objects) Shards() []string {
	shards := map[string]bool{}
	for key := range o {
		shards[Shard(key)] = true
	}
	delete(shards, "")
	return slices.Sorted(maps.Keys(shards))
}

// Of returns the objects of some shards; of none: all objects.
func (o Objects) Of(shards []string) Objects {
	if len(shards) == 0 {
		return o
	}
	some := maps.Clone(o)
	maps.DeleteFunc(some, func(key string, _ []byte) bool { return !slices.Contains(shards, Shard(key)) })
	return some
}

// keys returns the keys of a part, sorted.
func (o Objects) keys(part string) (keys []string) {
	for key := range o {
		if Part(key) == part {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
