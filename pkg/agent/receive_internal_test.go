package agent

import (
	"context"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/files"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// FuzzHostileServer plays arbitrary messages on the stream of files, with a directory that
// contains links to the outside, and checks that nothing outside changes and that no other
// file is removed. Each line of the script is one message: a name and a content to send, or
// the names of a commit.
func FuzzHostileServer(f *testing.F) {
	for _, script := range []string{
		"send a.conf 1\ncommit h a.conf\ncommit h2\n",
		"send link.conf x\nsend up.conf y\ncommit h link.conf up.conf\ncommit h2 up.conf\n",
		"send ../outside/sentinel x\ncommit h ../outside/sentinel\n",
		"send mine.conf x\ncommit h mine.conf\ncommit i\n",
		"commit h dir.conf\nsend dir.conf x\ncommit h dir.conf\n",
		"send .nstance/commit x\nsend config.hash x\ncommit config.hash config.hash .nstance\n",
		"send a.json {}\nsend A.json {}\ncommit h a.json A.json\n",
		"commit ../../x\ncommit h a.conf a.conf\n",
	} {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script string) {
		parent := fastDir(t)
		lay(t, parent)
		outside, own := snapshot(t, filepath.Join(parent, "outside")), filepath.Join(parent, "recv/own.txt")
		h := &holder{filesChanged: newTrigger(), HoldConfig: HoldConfig{
			Files:  files.NewDir(files.DirConfig{Path: filepath.Join(parent, "recv"), Mode: 0o640, Now: time.Now}),
			Logger: slog.New(slog.DiscardHandler),
		}}
		play(t, h, script)
		if got := snapshot(t, filepath.Join(parent, "outside")); !maps.Equal(got, outside) {
			t.Errorf("outside there is %v, want %v", got, outside)
		}
		if data, err := os.ReadFile(own); err != nil || string(data) != "own" {
			t.Errorf("a user's file is %q, %v", data, err)
		}
		if entries, err := os.ReadDir(parent); err != nil || len(entries) != 2 {
			t.Errorf("beside the directory: %v, %v", entries, err)
		}
	})
}

// fastDir returns an in-memory directory if available: every commit syncs several times.
func fastDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "nstance-fuzz-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// lay creates the directory, the files outside, and the links to them.
func lay(t *testing.T, parent string) {
	t.Helper()
	for _, dir := range []string{"outside", "recv", "recv/dir.conf"} {
		if err := os.Mkdir(filepath.Join(parent, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"outside/sentinel", "outside/a.conf", "recv/own.txt", "recv/mine.conf"} {
		if err := os.WriteFile(filepath.Join(parent, name), []byte("own"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"link.conf": "../outside/sentinel", "up.conf": "../outside", "new.conf": "../outside/new",
		"config.hash": "../outside/a.conf"} {
		if err := os.Symlink(target, filepath.Join(parent, "recv", name)); err != nil {
			t.Fatal(err)
		}
	}
}

func play(t *testing.T, h *holder, script string) {
	t.Helper()
	staged, lines := newStaging(), 0
	for line := range strings.Lines(script) {
		if lines++; lines > 40 {
			return
		}
		words := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case words[0] == "send" && len(words) >= 2:
			staged.add(&nstancev1.File{Name: words[1], Content: []byte(strings.Join(words[2:], " "))})
		case words[0] == "commit" && len(words) >= 2:
			set, err := staged.commit(&nstancev1.FilesCommit{ConfigHash: words[1], Names: words[2:]})
			staged = newStaging()
			err = h.install(context.Background(), set, err)
			told(t, h, set, err)
		}
	}
}

// told fails unless the report has the outcome of the last commit.
func told(t *testing.T, h *holder, set files.Set, err error) {
	t.Helper()
	r := &nstancev1.ReportHealthRequest{}
	h.reportFiles(r)
	failed := slices.ContainsFunc(r.GetFiles(), func(f *nstancev1.FileStatus) bool {
		return f.GetState() == nstancev1.FileState_FILE_STATE_FAILED
	})
	if err == nil && (r.GetConfigHash() != set.ConfigHash || failed || len(r.GetFiles()) != len(set.Names)) {
		t.Errorf("after the set %v was taken over %v is reported", set, r)
	}
	valid := slices.ContainsFunc(set.Names, func(name string) bool { return files.CheckName(name) == nil })
	if err != nil && valid && !failed {
		t.Errorf("after the set %v failed with %v %v is reported", set, err, r)
	}
}

func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var data []byte
			data, err = os.ReadFile(path)
			found[path] = string(data)
		} else if err == nil {
			found[path] = e.Type().String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// FuzzKeyFile reads arbitrary contents in place of a key.
func FuzzKeyFile(f *testing.F) {
	for _, seed := range []string{
		"", "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n-----END PRIVATE KEY-----\n",
		"-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if key, err := parseKey(data); (err == nil) == (key == nil) {
			t.Errorf("got %v, %v", key, err)
		}
	})
}
