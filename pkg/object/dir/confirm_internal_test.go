package dir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/object"
)

// TestSlowWriterFindsOut simulates a writer that was stopped between seeing a version and
// linking the next, which can't be done from outside: it must never return success unless its
// version really followed the one it saw.
func TestSlowWriterFindsOut(t *testing.T) {
	nonce := func(i int) string { return strings.Repeat(string(rune('A'+i)), nonceSize) }
	for name, c := range map[string]struct {
		writes int // by others, while it was stopped at version 1
		change func(folder string) error
		want   error
		now    string // the object's body afterwards
	}{
		"none wrote":             {0, nil, nil, "slow"},
		"one wrote":              {1, nil, errMoved, "1"},
		"its name is free again": {20, nil, errMoved, "20"},
		"the next is another's": {8, func(folder string) error { // 1 and 2 are gone, 3 exists
			return os.Remove(filepath.Join(folder, version{number: 2}.name()))
		}, errMoved, "8"},
		"it was deleted": {0, func(folder string) error { return os.Remove(filepath.Join(folder, live)) }, object.ErrUnknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(Config{Root: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			put := func(body string) {
				if _, err := s.Put(t.Context(), "k", []byte(body), object.Precondition{}); err != nil {
					t.Fatal(err)
				}
			}
			put("0")
			f, err := openFolder(s.path("k"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.close()
			seen, err := f.newest()
			if err != nil {
				t.Fatal(err)
			}
			seen.file.Close()
			for i := range c.writes {
				put(fmt.Sprint(i + 1))
			}
			if c.change != nil {
				if err := c.change(s.path("k")); err != nil {
					t.Fatal(err)
				}
			}
			err = f.replace(version{number: seen.number + 1, nonce: nonce(0), prev: seen.nonce}, []byte("slow"))
			if !errors.Is(err, c.want) {
				t.Errorf("the slow writer is told %v, want %v", err, c.want)
			}
			o, err := s.Get(t.Context(), "k")
			if c.now == "" != errors.Is(err, object.ErrNotFound) || string(o.Body) != c.now {
				t.Errorf("the object is %q, %v, want %q", o.Body, err, c.now)
			}
		})
	}
}

// TestConfirmedByItsSuccessor: a writer that was stopped right after its link, while others
// continued from its version, returns success.
func TestConfirmedByItsSuccessor(t *testing.T) {
	s, err := New(Config{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if _, err := s.Put(t.Context(), "k", fmt.Append(nil, i), object.Precondition{}); err != nil {
			t.Fatal(err)
		}
	}
	f, err := openFolder(s.path("k"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	second, err := f.open(2)
	if err != nil {
		t.Fatal(err)
	}
	second.file.Close()
	if err := f.root.Remove(version{number: 1}.name()); err != nil {
		t.Fatal(err)
	}
	if err := f.confirm(second); err != nil {
		t.Errorf("the writer of version 2, which 3 follows, is told %v", err)
	}
}
