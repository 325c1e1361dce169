package files_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/files"
)

func TestSetsFollowEachOther(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	d := open(dir, nil)
	if err := d.Load(); err != nil || d.Report().ConfigHash != "" {
		t.Fatalf("an absent directory: %v, %+v", err, d.Report())
	}
	steps := []struct {
		set  files.Set
		want map[string]string
	}{
		{set("h0", nil), map[string]string{}},
		{set("h1", map[string]string{"a.conf": "1", "b.json": "1"}), map[string]string{"a.conf": "1", "b.json": "1"}},
		{files.Set{ConfigHash: "h2", Names: []string{"c.env", "a.conf"}, Sent: map[string][]byte{"c.env": []byte("A=1")}},
			map[string]string{"a.conf": "1", "c.env": "A=1"}},
		{files.Set{ConfigHash: "h3", Names: []string{"c.env", "a.conf"}}, map[string]string{"a.conf": "1", "c.env": "A=1"}},
		{set("h4", nil), map[string]string{}},
	}
	for i, s := range steps {
		s.want["config.hash"] = hashFile(s.set.ConfigHash, maps.Clone(s.want))
		if i == 1 {
			put(t, dir, map[string]string{"mine.conf": "a user's", ".hidden": "too"})
		}
		if i >= 1 {
			maps.Copy(s.want, map[string]string{"mine.conf": "a user's", ".hidden": "too"})
		}
		if err := d.Commit(s.set); err != nil {
			t.Fatalf("%s: %v", s.set.ConfigHash, err)
		}
		if got := tree(t, dir); !maps.Equal(got, s.want) {
			t.Errorf("%s: got %v, want %v", s.set.ConfigHash, got, s.want)
		}
		again := open(dir, nil)
		if err := again.Load(); err != nil {
			t.Fatal(err)
		}
		for _, r := range []files.Report{d.Report(), again.Report()} {
			if r.ConfigHash != s.set.ConfigHash || len(r.Files) != len(s.set.Names) {
				t.Errorf("%s: reports %+v", s.set.ConfigHash, r)
			}
		}
		if left := must(os.ReadDir(filepath.Join(dir, ".nstance")))(t); len(left) != 1 {
			t.Errorf("%s: left behind: %v", s.set.ConfigHash, left)
		}
	}
}

// TestHashFileShowsEachChange: config.hash changes with the content of any file of the set, also if
// the set's hash stays, as when a certificate is renewed.
func TestHashFileShowsEachChange(t *testing.T) {
	dir := t.TempDir()
	d := open(dir, nil)
	have := map[string]string{"a.conf": "1", "b.conf": "1"}
	commit := func(s files.Set) string {
		t.Helper()
		if err := d.Commit(s); err != nil {
			t.Fatal(err)
		}
		if d.Report().ConfigHash != "h" {
			t.Errorf("reported %+v", d.Report())
		}
		return tree(t, dir)["config.hash"]
	}
	first := commit(set("h", have))
	again := commit(files.Set{ConfigHash: "h", Names: []string{"a.conf", "b.conf"}})
	have["b.conf"] = "2"
	renewed := commit(files.Set{ConfigHash: "h", Names: []string{"a.conf", "b.conf"}, Sent: map[string][]byte{"b.conf": []byte("2")}})
	if again != first || renewed == first || renewed != hashFile("h", have) {
		t.Errorf("config.hash was %q, the same set made it %q, a renewal %q", first, again, renewed)
	}
}

func TestModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := t.TempDir()
	put(t, dir, map[string]string{"b.conf": "was 0600"})
	if err := open(dir, nil).Commit(set("h", map[string]string{"a.conf": "1", "b.conf": "2"})); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.conf", "b.conf", "config.hash"} {
		if info := must(os.Lstat(filepath.Join(dir, name)))(t); info.Mode() != 0o640 {
			t.Errorf("%s has mode %s", name, info.Mode())
		}
	}
	if info := must(os.Lstat(filepath.Join(dir, ".nstance")))(t); info.Mode().Perm() != 0o700 {
		t.Errorf("the staging area has mode %s", info.Mode())
	}
}

// TestWhatStandsInTheWay puts other things than regular files in the place of files.
func TestWhatStandsInTheWay(t *testing.T) {
	parent := t.TempDir()
	outside, dir := filepath.Join(parent, "outside"), filepath.Join(parent, "recv")
	for _, path := range []string{outside, dir, filepath.Join(dir, "a-directory.conf")} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	put(t, outside, map[string]string{"sentinel": "untouched", "config.hash": "untouched"})
	for name, target := range map[string]string{
		"link.conf": "../outside/sentinel", "absolute.conf": filepath.Join(outside, "sentinel"), "dangling.conf": "../outside/new",
		"to-directory.conf": "../outside", "config.hash": "../outside/config.hash",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo.conf"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := open(dir, nil)
	before := tree(t, parent)
	wanted := map[string]string{
		"link.conf": "1", "absolute.conf": "2", "dangling.conf": "3", "to-directory.conf": "4", "fifo.conf": "5", "a-directory.conf": "6",
	}
	err := d.Commit(set("h", wanted))
	if got := files.Failures(err, nil); len(got) != 1 || !strings.Contains(got["a-directory.conf"], "there is a directory with this name") {
		t.Errorf("with a directory in the way: %v", err)
	}
	if got := tree(t, parent); !maps.Equal(got, before) {
		t.Errorf("a refused set changed the directory: %v", got)
	}
	delete(wanted, "a-directory.conf")
	if err := d.Commit(set("h", wanted)); err != nil {
		t.Fatal(err)
	}
	wanted["config.hash"], wanted["a-directory.conf"] = hashFile("h", wanted), "directory"
	if got := tree(t, dir); !maps.Equal(got, wanted) {
		t.Errorf("got %v, want %v", got, wanted)
	}
	if got := tree(t, outside); !maps.Equal(got, map[string]string{"sentinel": "untouched", "config.hash": "untouched"}) {
		t.Errorf("outside: %v", got)
	}
}

// TestOurFolderIsALink replaces the hidden folder with a link.
func TestOurFolderIsALink(t *testing.T) {
	parent := t.TempDir()
	for _, name := range []string{"outside", "recv", "recv/inside"} {
		if err := os.Mkdir(filepath.Join(parent, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{"../outside", "inside"} {
		link := filepath.Join(parent, "recv/.nstance")
		os.Remove(link)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		d := open(filepath.Join(parent, "recv"), nil)
		if err := d.Commit(set("h", nil)); err == nil || !strings.Contains(err.Error(), "not a directory") {
			t.Errorf("%s: %v", target, err)
		}
		if got := tree(t, filepath.Join(parent, "outside")); len(got) != 0 {
			t.Errorf("%s: outside: %v", target, got)
		}
	}
}

func TestRefusedSets(t *testing.T) {
	dir := t.TempDir()
	d := open(dir, nil)
	if err := d.Commit(set("h", map[string]string{"a.conf": "1"})); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	big := map[string]string{}
	for _, name := range []string{"1.conf", "2.conf", "3.conf", "4.conf", "5.conf"} {
		big[name] = strings.Repeat("x", files.MaxFileSize)
	}
	for want, s := range map[string]files.Set{
		"not a valid config hash":  set("", nil),
		"not a valid config hash:": set("a b", nil),
		"not a valid file name":    set("h2", map[string]string{"../a.conf": "1"}),
		"more than case":           set("h2", map[string]string{"a.conf": "1", "A.conf": "1"}),
		"not in the set":           {ConfigHash: "h2", Sent: map[string][]byte{"b.conf": nil}},
		"b.json: not JSON":         set("h2", map[string]string{"a.conf": "2", "b.json": "{"}),
		"b.conf: it was not":       {ConfigHash: "h2", Names: []string{"a.conf", "b.conf"}, Sent: map[string][]byte{"a.conf": []byte("2")}},
		"bytes at once: at most":   set("h2", big),
	} {
		err := d.Commit(s)
		if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(want, ":")) {
			t.Errorf("%v, want %q in it", err, want)
		}
		if got := tree(t, dir); !maps.Equal(got, before) || d.Report().ConfigHash != "h" {
			t.Fatalf("%s: the refused set changed the directory: %v", want, got)
		}
	}
}

func TestReport(t *testing.T) {
	dir := t.TempDir()
	end := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	cert, _, _ := certificate(t, end)
	d := open(dir, nil)
	if err := d.Commit(set("h", map[string]string{"a.conf": "1", "b.crt": cert, "c.conf": "3", "d.conf": "4"})); err != nil {
		t.Fatal(err)
	}
	leaf := must(files.ReadLeaf([]byte(cert)))(t)
	status := func(name string) files.Status {
		for _, s := range d.Report().Files {
			if s.Name == name {
				return s
			}
		}
		t.Fatalf("nothing is reported of %s", name)
		return files.Status{}
	}
	if s := status("b.crt"); s.Leaf == nil || *s.Leaf != leaf || s.SHA256 != files.Digest([]byte(cert)) || s.Err != nil {
		t.Errorf("the certificate is reported as %+v", s)
	}
	if s := status("a.conf"); s.SHA256 != files.Digest([]byte("1")) || s.Leaf != nil {
		t.Errorf("the file is reported as %+v", s)
	}
	put(t, dir, map[string]string{"a.conf": "edited", "b.crt": "edited"})
	os.Remove(filepath.Join(dir, "c.conf"))
	os.Remove(filepath.Join(dir, "d.conf"))
	if err := syscall.Mkfifo(filepath.Join(dir, "d.conf"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := status("a.conf"); s.SHA256 != files.Digest([]byte("edited")) {
		t.Errorf("the edited file is reported as %+v", s)
	}
	if s := status("b.crt"); s.SHA256 != files.Digest([]byte("edited")) || s.Err == nil {
		t.Errorf("the edited certificate is reported as %+v", s)
	}
	if s := status("c.conf"); s.SHA256 != "" || s.Err != nil {
		t.Errorf("the removed file is reported as %+v", s)
	}
	if s := status("d.conf"); s.SHA256 != "" || s.Err != nil {
		t.Errorf("the FIFO is reported as %+v", s)
	}
	if d.Report().ConfigHash != "h" {
		t.Error("the hash is not reported")
	}
	put(t, dir, map[string]string{"config.hash": "other\n"})
	if d.Report().ConfigHash != "" {
		t.Error("an unreadable hash is reported")
	}
	os.RemoveAll(dir)
	if r := d.Report(); r.ConfigHash != "" || len(r.Files) != 4 || r.Files[0].SHA256 != "" {
		t.Errorf("without the directory: %+v", r)
	}
	if err := d.Commit(set("h", map[string]string{"a.conf": "1"})); err != nil || d.Report().ConfigHash != "h" {
		t.Errorf("the directory does not come back: %v", err)
	}
}

// TestReportReadsAFileOnce changes a file without changing its inode, size and time.
func TestReportReadsAFileOnce(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	d := files.NewDir(files.DirConfig{Path: dir, Mode: 0o640, Now: func() time.Time { return now }})
	if err := d.Commit(set("h", map[string]string{"a.conf": "one"})); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a.conf")
	write := func(content string, at time.Time) string {
		put(t, dir, map[string]string{"a.conf": content})
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		return d.Report().Files[0].SHA256
	}
	past := now.Add(-time.Hour)
	first := write("one", past)
	if got := write("two", past); got != first {
		t.Error("the file is read for every report")
	}
	if got := write("two", past.Add(time.Second)); got != files.Digest([]byte("two")) {
		t.Error("a change is not seen")
	}
	if write("one", now); write("two", now) != files.Digest([]byte("two")) {
		t.Error("two changes within the resolution of a file's time are taken for one")
	}
}

// TestReportDoesNotWait calls Report during a commit.
func TestReportDoesNotWait(t *testing.T) {
	var d *files.Dir
	asked := false
	d = open(t.TempDir(), func(string, string) error {
		if r := d.Report(); r.ConfigHash != "h1" {
			asked = asked || r.ConfigHash != ""
		}
		return nil
	})
	if err := d.Commit(set("h1", map[string]string{"a.conf": "1"})); err != nil {
		t.Fatal(err)
	}
	d.Report()
	if err := d.Commit(set("h2", map[string]string{"a.conf": "2"})); err != nil || asked {
		t.Errorf("%v; a report in the midst of a commit told of it: %v", err, asked)
	}
	if d.Report().ConfigHash != "h2" {
		t.Error("the new set is not reported")
	}
}
