package dir_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/dir"
	"github.com/nstance/nstance/pkg/object/objecttest"
)

func open(t testing.TB, root string) *dir.Store {
	t.Helper()
	s, err := dir.New(dir.Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	objecttest.Run(t, func(t *testing.T) object.Store { return open(t, t.TempDir()) })
}

// TestETagsNeverRecur: the same key, with the same body, after the same number of writes, never
// gets an etag from before its deletion.
func TestETagsNeverRecur(t *testing.T) {
	s := open(t, t.TempDir())
	seen := map[object.ETag]bool{}
	for range 3 {
		for _, pre := range []object.Precondition{object.IfAbsent(), {}, {}} {
			etag := put(t, s, "k", "same", pre)
			if seen[etag] {
				t.Fatalf("etag %q came twice", etag)
			}
			seen[etag] = true
		}
		if err := s.Delete(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOldVersionsGo: an often-written object stays small, and a deleted one leaves nothing,
// including folders.
func TestOldVersionsGo(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	for i := range 50 {
		put(t, s, "leader/dev-1.json", fmt.Sprint(i), object.Precondition{})
	}
	if all := files(t, root); len(all) > 10 {
		t.Errorf("50 writes leave %d files", len(all))
	}
	if err := s.Delete(t.Context(), "leader/dev-1.json"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 1 || entries[0].Name() != "tmp" {
		t.Errorf("the deletion of the only object leaves %v, %v", entries, err)
	}
}

func TestSurvivesReopening(t *testing.T) {
	root := t.TempDir()
	etag := put(t, open(t, root), "a/b", "body", object.IfAbsent())
	again := open(t, root)
	o, err := again.Get(t.Context(), "a/b")
	if err != nil || o.ETag != etag || string(o.Body) != "body" {
		t.Errorf("get = %q, etag %q, %v; want body, etag %q", o.Body, o.ETag, err, etag)
	}
	put(t, again, "a/b", "next", object.IfMatch(etag))
}

// TestSlowWriter simulates a writer that saw version 1 and links version 2 after that was
// removed. The store's own writers can't be stopped there, so the folder is put into that
// state.
func TestSlowWriter(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	for i := range 20 {
		put(t, s, "k", fmt.Sprint(i), object.Precondition{})
	}
	before, err := s.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	// A killed slow writer leaves an old version, which must not be visible.
	folder := filepath.Join(root, "k.o")
	newest := slices.Max(versions(t, folder))
	stale, err := os.ReadFile(filepath.Join(folder, newest))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "0000000000000002"), stale, 0o600); err != nil {
		t.Fatal(err)
	}
	after, err := s.Get(t.Context(), "k")
	if err != nil || after.ETag != before.ETag {
		t.Errorf("etag %q, %v, want %q", after.ETag, err, before.ETag)
	}
	put(t, s, "k", "next", object.IfMatch(before.ETag))
	if got := versions(t, folder); slices.Contains(got, "0000000000000002") {
		t.Errorf("the stale version stays: %q", got)
	}
}

// TestDeadFolder simulates a deletion that was killed after its first step, and a slow writer's
// file in the rest.
func TestDeadFolder(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	old := put(t, s, "k", "old", object.IfAbsent())
	if err := os.Remove(filepath.Join(root, "k.o", "live")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, object.ErrNotFound) {
		t.Errorf("get of a dead folder: %v", err)
	}
	if _, err := s.Put(t.Context(), "k", []byte("new"), object.IfMatch(old)); !errors.Is(err, object.ErrConflict) {
		t.Errorf("if-match in a dead folder: %v", err)
	}
	if all, err := object.All(t.Context(), s, ""); err != nil || len(all) != 0 {
		t.Errorf("listed %v, %v", all, err)
	}
	put(t, s, "k", "new", object.IfAbsent())
	if o, err := s.Get(t.Context(), "k"); err != nil || string(o.Body) != "new" {
		t.Errorf("get = %q, %v", o.Body, err)
	}
}

// TestLeftovers: temporary files are removed once no writer can own them, not before.
func TestLeftovers(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	put(t, s, "k", "one", object.IfAbsent())
	long := time.Now().Add(-2 * time.Hour)
	for _, name := range []string{"tmp/old/x", "tmp/new/x", "k.o/tmp-old", "k.o/tmp-new"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(name, "old") {
			for _, p := range []string{path, filepath.Dir(path)} {
				if filepath.Base(p) != "k.o" && os.Chtimes(p, long, long) != nil {
					t.Fatal("chtimes")
				}
			}
		}
	}
	put(t, open(t, root), "k", "two", object.Precondition{})
	left := files(t, root)
	for name, want := range map[string]bool{"tmp/old/x": false, "tmp/new/x": true, "k.o/tmp-old": false, "k.o/tmp-new": true} {
		if slices.Contains(left, name) != want {
			t.Errorf("%s is there: %v, want %v", name, !want, want)
		}
	}
}

func versions(t *testing.T, folder string) []string {
	t.Helper()
	names := []string{}
	for _, name := range files(t, folder) {
		if strings.HasPrefix(name, "0") {
			names = append(names, name)
		}
	}
	return names
}

func TestBadRoot(t *testing.T) {
	if _, err := dir.New(dir.Config{}); err == nil || !strings.Contains(err.Error(), "Root is empty") {
		t.Errorf("no root: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.New(dir.Config{Root: file}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file for a root: %v", err)
	}
}

// FuzzVersionFile: a file that this store did not write is never taken for an object with a
// wrong body, nor for an absent one.
func FuzzVersionFile(f *testing.F) {
	good := "nstance-object-1 ABCDEFGHIJKLMNOPQRSTUVWXYZ --------------------------\n"
	f.Add([]byte(good + "body"))
	f.Add([]byte(good))
	f.Add([]byte(good[:30]))
	f.Add([]byte(strings.Replace(good, " ", "-", 1)))
	f.Add([]byte(strings.ToUpper(good)))
	f.Add([]byte{})
	root := f.TempDir()
	s := open(f, root)
	if _, err := s.Put(f.Context(), "k", []byte("x"), object.IfAbsent()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(filepath.Join(root, "k.o", "0000000000000001"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := s.Get(t.Context(), "k")
		switch {
		case err == nil && (!strings.HasPrefix(string(content), "nstance-object-1 ") || string(content[len(good):]) != string(o.Body)):
			t.Errorf("%q was read as the body %q", content, o.Body)
		case err != nil && !errors.Is(err, object.ErrUnknown):
			t.Errorf("%q: %v, want ErrUnknown", content, err)
		}
	})
}
