package files_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nstance/nstance/pkg/files"
)

// The scene of the tests here: a set, the next one, and a user's files.
var (
	oldFiles = map[string]string{"changed.conf": "old", "same.conf": "same", "gone.conf": "gone", "linked.conf": "new"}
	newFiles = map[string]string{"changed.conf": "new", "same.conf": "same", "fresh.json": "{}", "linked.conf": "new"}
	personal = map[string]string{"mine.conf": "a user's"}
)

func nextSet() files.Set {
	s := set("new", newFiles)
	delete(s.Sent, "same.conf")
	return s
}

// scene is a directory with the old set and a user's file in it.
func scene(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := open(dir, nil).Commit(set("old", oldFiles)); err != nil {
		t.Fatal(err)
	}
	put(t, dir, personal)
	return dir
}

func whole(hash string, contents map[string]string) map[string]string {
	all := map[string]string{"config.hash": hashFile(hash, contents)}
	maps.Copy(all, contents)
	maps.Copy(all, personal)
	return all
}

// onlyWhole fails unless dir holds exactly the old or the new set, and d reports the same.
func onlyWhole(t *testing.T, dir string, d *files.Dir) (hash string) {
	t.Helper()
	got := tree(t, dir)
	for hash, contents := range map[string]map[string]string{"old": oldFiles, "new": newFiles} {
		if maps.Equal(got, whole(hash, contents)) && d.Report().ConfigHash == hash {
			return hash
		}
	}
	t.Fatalf("neither the old set nor the new one: %v, reported %q", got, d.Report().ConfigHash)
	return ""
}

var errCrash = errors.New("crashed")

// crash allows some steps and then fails all others.
type crash struct {
	left     int
	happened bool
}

func (c *crash) step(string, string) error {
	if c.left--; c.left < 0 {
		c.happened = true
		return errCrash
	}
	return nil
}

// halfWay fails if a file is neither old nor new.
func halfWay(t *testing.T, dir string) {
	t.Helper()
	for name, content := range tree(t, dir) {
		if content != oldFiles[name] && content != newFiles[name] && content != personal[name] && name != "config.hash" {
			t.Errorf("%s is %q after the crash", name, content)
		}
	}
}

// TestCrashes crashes a commit after every number of steps, and the following recovery after
// every number of its own, and then starts once more.
func TestCrashes(t *testing.T) {
	outcomes := map[string]int{}
	for n := 0; ; n++ {
		dir := scene(t)
		first := &crash{left: n}
		err := open(dir, first.step).Commit(nextSet())
		if !first.happened {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		halfWay(t, dir)
		for m := 0; ; m++ {
			copied := t.TempDir()
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			second := &crash{left: m}
			open(copied, second.step).Load()
			halfWay(t, copied)
			d := open(copied, nil)
			if err := d.Load(); err != nil {
				t.Fatalf("after %d steps and %d of the recovery: %v", n, m, err)
			}
			outcomes[onlyWhole(t, copied, d)]++
			if err := d.Commit(nextSet()); err != nil || onlyWhole(t, copied, d) != "new" {
				t.Fatalf("after %d steps and %d of the recovery, the set can't be taken over: %v", n, m, err)
			}
			if !second.happened {
				break
			}
		}
	}
	t.Logf("%v", outcomes)
	if outcomes["old"] < 10 || outcomes["new"] < 10 {
		t.Errorf("the crashes were not everywhere: %v", outcomes)
	}
}

// TestOneStepFails fails each step once: the old set stays, or is restored at once.
func TestOneStepFails(t *testing.T) {
	for _, links := range []bool{true, false} {
		refused := 0
		for n, passed := 0, false; !passed; n++ {
			var failed bool
			passed, failed = oneStepFails(t, n, links)
			if failed {
				refused++
			}
		}
		if refused < 15 {
			t.Errorf("only %d steps can fail", refused)
		}
	}
}

// oneStepFails fails step n, on a file system with or without hard links. It reports whether
// there was no step n, and whether the set was not applied.
func oneStepFails(t *testing.T, n int, links bool) (passed, failed bool) {
	dir := scene(t)
	at, left := "", n
	d := open(dir, func(op, name string) error {
		if op == "link" && !links {
			return syscall.EPERM
		}
		if left--; left == -1 {
			at = op + " " + name
			return syscall.ENOSPC
		}
		return nil
	})
	err := d.Commit(nextSet())
	hash := onlyWhole(t, dir, d)
	if (err == nil) != (hash == "new") {
		t.Errorf("with %s refused: %v, and the %s set is in place", at, err, hash)
	}
	if err != nil && len(files.Failures(err, nextSet().Names)) == 0 {
		t.Errorf("with %s refused nothing is said of any file", at)
	}
	again := open(dir, nil)
	if err := again.Load(); err != nil || onlyWhole(t, dir, again) != hash {
		t.Errorf("with %s refused, another start changes the set: %v", at, err)
	}
	return left >= 0, err != nil
}

// TestUndoThatCrashes fails a step after the point of commitment, and crashes while the old
// set is restored.
func TestUndoThatCrashes(t *testing.T) {
	for n := 0; ; n++ {
		dir := scene(t)
		undoing, during := false, &crash{left: n}
		err := open(dir, func(op, name string) error {
			if op == "rename" && name == "config.hash" && !undoing {
				undoing = true
				return syscall.EIO
			}
			if undoing {
				return during.step(op, name)
			}
			return nil
		}).Commit(nextSet())
		if err == nil {
			t.Fatal("the set was taken over")
		}
		d := open(dir, nil)
		if err := d.Load(); err != nil {
			t.Fatalf("after %d steps of undoing: %v", n, err)
		}
		onlyWhole(t, dir, d)
		if !during.happened {
			break
		}
	}
}

// TestOrderOfSteps checks the order that power failures rely on: staged files are synced
// before the commit, renames are synced before config.hash, and config.hash before the record
// that the commit is done.
func TestOrderOfSteps(t *testing.T) {
	dir := scene(t)
	var steps []string
	d := open(dir, func(op, name string) error {
		steps = append(steps, op+" "+name)
		return nil
	})
	if err := d.Commit(nextSet()); err != nil {
		t.Fatal(err)
	}
	at := func(step string) int {
		i := slices.Index(steps, step)
		if i < 0 {
			t.Fatalf("no step %q in %q", step, steps)
		}
		return i
	}
	after := func(from int, step string) int {
		i := slices.Index(steps[from:], step)
		if i < 0 {
			t.Fatalf("no step %q after %q", step, steps[from])
		}
		return from + i
	}
	committed := at("rename .nstance/commit")
	for _, early := range []string{
		"write .nstance/stage/changed.conf", "link .nstance/old/gone.conf", "write .nstance/draft",
		"sync .nstance/stage", "sync .nstance/old", "sync .nstance",
	} {
		if at(early) > committed {
			t.Errorf("%s comes after the commit", early)
		}
	}
	i := after(committed, "sync .nstance")
	i = after(i, "rename changed.conf")
	i = after(i, "rename fresh.json")
	i = after(i, "remove gone.conf")
	i = after(i, "sync .")
	i = after(i, "rename config.hash")
	i = after(i, "sync .")
	after(i, "rename .nstance/manifest")
}

// TestKilledProcess kills a real process during commits.
func TestKilledProcess(t *testing.T) {
	if dir := os.Getenv("NSTANCE_TEST_KILL_DIR"); dir != "" {
		n, _ := strconv.Atoi(os.Getenv("NSTANCE_TEST_KILL_AT"))
		open(dir, func(string, string) error {
			if n--; n < 0 {
				return syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return nil
		}).Commit(nextSet())
		return
	}
	for n := 0; ; n += 4 {
		dir := scene(t)
		command := exec.Command(os.Args[0], "-test.run=^TestKilledProcess$")
		command.Env = append(os.Environ(), "NSTANCE_TEST_KILL_DIR="+dir, fmt.Sprint("NSTANCE_TEST_KILL_AT=", n))
		err := command.Run()
		d := open(dir, nil)
		if err := d.Load(); err != nil {
			t.Fatal(err)
		}
		hash := onlyWhole(t, dir, d)
		if err == nil {
			if hash != "new" || n < 20 {
				t.Errorf("%d steps made the %s set", n, hash)
			}
			return
		}
	}
}

// TestGarbledRecords edits the hidden records by hand.
func TestGarbledRecords(t *testing.T) {
	for _, name := range []string{"manifest", "commit", "undo"} {
		for _, content := range []string{
			"", "{", `{"config_hash":"h","names":["../../etc/passwd"]}`, `{"config_hash":"h","names":["a.conf"],"fresh":["../x"]}`,
			strings.Repeat("x", 1<<20),
		} {
			dir := scene(t)
			put(t, dir, map[string]string{".nstance/" + name: content})
			d := open(dir, nil)
			if err := d.Load(); err != nil {
				t.Errorf("%s with %.20q: %v", name, content, err)
			}
			if err := d.Commit(set("new", newFiles)); err != nil || d.Report().ConfigHash != "new" {
				t.Errorf("%s with %.20q: %v", name, content, err)
			}
		}
	}
}

// TestFirstSetFails has no previous set to restore, only a user's files.
func TestFirstSetFails(t *testing.T) {
	for n, passed := 0, false; !passed; n++ {
		dir := t.TempDir()
		put(t, dir, personal)
		left, at := n, ""
		err := open(dir, func(op, name string) error {
			if left--; left == -1 {
				at = op + " " + name
				return syscall.EIO
			}
			return nil
		}).Commit(set("new", newFiles))
		passed = left >= 0
		again := open(dir, nil)
		if err := again.Load(); err != nil {
			t.Fatal(err)
		}
		want, hash := personal, ""
		if err == nil {
			want, hash = whole("new", newFiles), "new"
		}
		if got := tree(t, dir); !maps.Equal(got, want) || again.Report().ConfigHash != hash {
			t.Errorf("with %s refused: %v, and there is %v, reported %q", at, err, got, again.Report().ConfigHash)
		}
	}
}
