package backup_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/admin/backup"
	"github.com/nstance/nstance/pkg/object"
)

// TestDamagedBackup: no beginning of a backup is read, and neither is one with a changed byte, or more behind it.
func TestDamagedBackup(t *testing.T) {
	file := taken(t, example().store(t))
	for n := range file {
		if _, err := backup.Read(bytes.NewReader(file[:n])); err == nil {
			t.Errorf("the first %d of %d bytes were read", n, len(file))
		}
		changed := slices.Clone(file)
		changed[n] ^= 0x10
		objects, err := backup.Read(bytes.NewReader(changed))
		if err == nil && !maps.EqualFunc(objects, read(t, file), bytes.Equal) {
			t.Errorf("with another byte %d it was read as %v", n, objects)
		}
	}
	for _, more := range [][]byte{file, []byte("x"), {0}} {
		if _, err := backup.Read(bytes.NewReader(slices.Concat(file, more))); err == nil {
			t.Errorf("%d bytes behind the end were ignored", len(more))
		}
	}
}

// entry is one of a tar.
type entry struct {
	tar.Header
	body string
}

// packed returns a gzipped tar.
func packed(t *testing.T, entries ...entry) io.Reader {
	t.Helper()
	var file bytes.Buffer
	z := gzip.NewWriter(&file)
	w := tar.NewWriter(z)
	for _, e := range entries {
		if e.Size == 0 {
			e.Size = int64(len(e.body))
		}
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Flush(), z.Close()); err != nil && !strings.Contains(err.Error(), "missed writing") {
		t.Fatal(err)
	}
	return &file
}

// TestOtherFiles: a tar of anything else is not read, and neither is one of a later format, or with objects that no
// backup has, or that are too large.
func TestOtherFiles(t *testing.T) {
	file := func(name, body string) entry { return entry{tar.Header{Typeflag: tar.TypeReg, Name: name}, body} }
	mark := file("nstance-backup", "1\n")
	for want, entries := range map[string][]entry{
		"not a backup: want a file that `nstance-admin cluster backup` made": {file("README.md", "read me")},
		"a later version":           {file("nstance-backup", "2\n")},
		"not a regular file":        {mark, {tar.Header{Typeflag: tar.TypeSymlink, Name: "config/a", Linkname: "/etc/passwd"}, ""}},
		"invalid object key":        {mark, file("config/../a", "x")},
		`"leader/a.json", which is`: {mark, file("leader/a.json", "{}")},
		`"config/a" twice`:          {mark, file("config/a", "{}"), file("config/a", "{}")},
		"it has no cluster/ca.crt":  {mark, file("config/a", "{}")},
		"has no cluster/ca.crt":     {mark},
		"files/big has 67108865 b":  {mark, {tar.Header{Typeflag: tar.TypeReg, Name: "files/big", Size: 64<<20 + 1}, ""}},
	} {
		if _, err := backup.Read(packed(t, entries...)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// FuzzRead: whatever a file holds, reading it returns objects that a bucket accepts, or an error.
func FuzzRead(f *testing.F) {
	f.Add(taken(f, example().store(f)))
	f.Add([]byte("\x1f\x8b"))
	f.Add(append(taken(f, example().store(f)), 0))
	f.Fuzz(func(t *testing.T, file []byte) {
		objects, err := backup.Read(bytes.NewReader(file))
		if (err == nil) != (len(objects) > 0) {
			t.Errorf("%d objects, error %v", len(objects), err)
		}
		for key := range objects {
			if err := object.CheckKey(key); err != nil || backup.Part(key) == "leader" {
				t.Errorf("key %q: %v", key, err)
			}
		}
	})
}
