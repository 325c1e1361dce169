package store_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstance/nstance/cmd/dev-k8s/store"
)

// writerRoot is the environment variable that makes the test binary the writer process, which
// the test kills.
const writerRoot = "DEV_K8S_WRITER"

func TestMain(m *testing.M) {
	if root := os.Getenv(writerRoot); root != "" {
		if err := writeForever(root); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func step(i int) (key, value string) {
	name := fmt.Sprintf("c%02d", i%20)
	value = fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"default","uid":"u-%d",`+
		`"creationTimestamp":"2026-01-02T03:04:05Z"},"data":{"v":"%d"}}`+"\n", name, i%20, i)
	if i%7 == 6 {
		value = "" // deletes the key
	}
	return "/registry/configmaps/default/" + name, value
}

// writeForever writes, and prints each step and its revision once it is committed.
func writeForever(root string) error {
	s, err := store.Open(store.Config{Root: root})
	if err != nil {
		return err
	}
	var first int
	if _, err := fmt.Sscan(os.Getenv(writerRoot+"_FIRST"), &first); err != nil {
		return err
	}
	for i := first; ; i++ {
		key, value := step(i)
		rev, _, err := s.Commit([]string{key}, func(func(string) *store.Entry) *store.Change {
			return &store.Change{Key: key, Value: []byte(value), Delete: value == ""}
		})
		if err != nil {
			return err
		}
		fmt.Println(i, rev)
	}
}

// TestKilled: after kill -9, every acknowledged write is stored once, with the returned
// revision.
func TestKilled(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	want, revs := map[string]string{}, map[string]int64{}
	next, newest := 0, int64(0)
	for round, lines := range []int{1, 150, 37, 201, 90, 13, 68, 111} {
		if round > 0 {
			next++ // the unacknowledged step is not repeated
		}
		next, newest = kill(t, root, next, lines, want, revs)
		s, err := store.Open(store.Config{Root: root})
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{Store: s, t: t, root: root}
		if rev := f.Revision(); rev < newest || rev > newest+1 {
			t.Errorf("round %d: revision %d after %d", round, rev, newest)
		}
		if len(f.Problems()) > 0 {
			t.Errorf("round %d: %v", round, f.Problems())
		}
		key, inFlight := step(next) // not acknowledged, so it may have been stored or not
		if e := f.get(key); e != nil && string(e.Value) == inFlight || e == nil && inFlight == "" {
			want[key], revs[key] = inFlight, f.Revision()
			if e != nil {
				revs[key] = e.Mod
			}
		}
		for key, value := range want {
			e := f.get(key)
			if e == nil && value == "" {
				continue
			}
			if e == nil || string(e.Value) != value || e.Mod != revs[key] {
				t.Errorf("round %d: %s is %+v, want %q at %d", round, key, e, value, revs[key])
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	partial, err := filepath.Glob(filepath.Join(root, "configmaps", "default", ".*"))
	if err != nil || len(partial) > 0 {
		t.Errorf("partial files: %v, %v", partial, err)
	}
}

// kill runs a writer process from step first on, and kills it after some writes. It returns the
// first unacknowledged step, and the newest acknowledged revision.
func kill(t *testing.T, root string, first, lines int, want map[string]string, revs map[string]int64) (next int, newest int64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerRoot+"="+root, fmt.Sprintf("%s_FIRST=%d", writerRoot, first))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	next = first
	scanner := bufio.NewScanner(out)
	for n := 0; scanner.Scan(); n++ {
		var i int
		var rev int64
		if _, err := fmt.Sscan(scanner.Text(), &i, &rev); err != nil {
			t.Fatal(err)
		}
		key, value := step(i)
		want[key], revs[key] = value, rev
		next, newest = i+1, rev
		if n+1 == lines {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait()
	if next < first+lines {
		t.Fatalf("the writer exited after %d steps, want at least %d", next-first, lines)
	}
	return next, newest
}

// TestReopen: revisions, versions and leases are unchanged, and so are keys without a file.
func TestReopen(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := open(t, root)
	lease, err := f.Grant(0, 600)
	if err != nil {
		t.Fatal(err)
	}
	f.put(nodeKey, node(""))
	f.put(nodeKey, node(`,"labels":{"a":"<&>"}`))
	f.put("compact_rev_key", "17")
	f.put("binary", "\x00\xff")
	f.put("spaced", `{ "a": 1 }`)
	if _, _, err := f.Commit(nil, func(func(string) *store.Entry) *store.Change {
		return &store.Change{Key: "leased", Value: []byte("x"), Lease: lease.ID}
	}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Commit(nil, func(func(string) *store.Entry) *store.Change {
		return &store.Change{Key: "spaced", Delete: true}
	}); err != nil {
		t.Fatal(err)
	}
	before, err := f.Range(store.Query{Key: "\x00", End: "\x00"})
	if err != nil {
		t.Fatal(err)
	}
	f.stop()
	f = open(t, root)
	after, err := f.Range(store.Query{Key: "\x00", End: "\x00"})
	if err != nil {
		t.Fatal(err)
	}
	if before.Revision != after.Revision || len(before.Entries) != len(after.Entries) {
		t.Fatalf("%+v became %+v", before, after)
	}
	for i, e := range before.Entries {
		if a := after.Entries[i]; fmt.Sprintf("%+v", *a) != fmt.Sprintf("%+v", *e) {
			t.Errorf("%+v became %+v", *e, *a)
		}
	}
	if _, _, keys, err := f.Remaining(lease.ID); err != nil || len(keys) != 1 {
		t.Errorf("the lease: %v, %v", keys, err)
	}
	if _, err := f.Range(store.Query{Key: nodeKey, Revision: after.Revision - 1}); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("an earlier revision: %v, want ErrCompacted", err)
	}
}

// TestEditsWhileStopped: edits of a stopped store get revisions of their own, so that a client
// with an older one can't overwrite them.
func TestEditsWhileStopped(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := open(t, root)
	f.put(nodeKey, node(""))
	f.put("/registry/configmaps/default/gone", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"gone","namespace":"default"}}`)
	bad := f.put("/registry/configmaps/default/bad", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"bad","namespace":"default"}}`)
	f.stop()
	f.write("nodes/n1.json", node(`,"labels":{"a":"b"}`))
	f.write("configmaps/default/new.json", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{}}`)
	f.write("configmaps/default/bad.json", `{"kind":"ConfigMap"`)
	if err := os.Remove(f.path("configmaps/default/gone.json")); err != nil {
		t.Fatal(err)
	}
	// A definition and its object, whose file sorts before that of the definition.
	f.write("awidgets/default/w.json", strings.Replace(widget("example.com", `{"size":1}`), "Widget", "AWidget", 1))
	f.write("customresourcedefinitions/awidgets.example.com.json",
		strings.NewReplacer("widgets", "awidgets", "Widget", "AWidget").Replace(widgetCRD))
	f = open(t, root)
	if e := f.get(nodeKey); e.Mod <= bad || e.Version != 2 || !sameJSON(t, e.Value, node(`,"labels":{"a":"b"}`)) {
		t.Errorf("edited: %+v", e)
	}
	if f.get("/registry/configmaps/default/gone") != nil || f.get("/registry/configmaps/default/new") == nil ||
		f.get("/registry/example.com/awidgets/default/w") == nil {
		t.Errorf("removed or created: %v", f.Problems())
	}
	if e := f.get("/registry/configmaps/default/bad"); e == nil || e.Mod != bad || len(f.Problems()) != 1 {
		t.Errorf("held back: %+v, %v", e, f.Problems())
	}
}

// TestTornJournal: the last line of the journal was written only in part.
func TestTornJournal(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := open(t, root)
	rev := f.put("a", "1")
	f.stop()
	j, err := os.OpenFile(filepath.Join(root, ".journal"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.WriteString(`{"rev":99,"key":"a","cre`); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	f = open(t, root)
	if e := f.get("a"); e == nil || e.Mod != rev || f.put("a", "2") != rev+1 {
		t.Errorf("after a torn line: %+v", e)
	}
	f.stop()
	if f = open(t, root); string(f.get("a").Value) != "2" {
		t.Errorf("after another write: %+v", f.get("a"))
	}
}

func TestOneProcess(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := open(t, root)
	if _, err := store.Open(store.Config{Root: root}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second process: %v", err)
	}
	f.stop()
	open(t, root)
}

// TestFoldersStay: which group has the short folder does not depend on the order in which the
// store reads them again.
func TestFoldersStay(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := open(t, root)
	f.put("/registry/b.example.com/widgets/default/w", `{"a":1}`)
	f.put("/registry/a.example.com/widgets/default/w", `{"a":2}`)
	f.stop()
	for _, path := range []string{"widgets/default/w.json", "widgets.a.example.com/default/w.json"} {
		if f.read(path) == "" {
			t.Error(path)
		}
	}
	f = open(t, root)
	if len(f.Problems()) != 0 || f.Revision() != 3 {
		t.Errorf("revision %d, held back: %v", f.Revision(), f.Problems())
	}
}
