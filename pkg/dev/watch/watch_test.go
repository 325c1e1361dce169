package watch_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/dev/watch"
)

// source is a watched folder, and the results of its builds.
type source struct {
	t    *testing.T
	root string

	mu     sync.Mutex
	log    bytes.Buffer
	fails  error
	writes func() // called during a build
	builds int
	built  int
}

func simulated(t *testing.T, tell func(*source)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &source{t: t, root: t.TempDir()}
		s.write("main.go", "package main")
		s.write("bin/main", "binary")
		s.write(".git/HEAD", "main")
		end := s.begin().start(t)
		s.later()
		tell(s)
		end()
	})
}

// watching is a watch after its first scan.
type watching struct{ *watch.Watch }

func (s *source) begin() watching {
	s.t.Helper()
	w, err := watch.Start(watch.Config{
		Root: s.root, Skip: []string{filepath.Join(s.root, "bin")}, Every: time.Second,
		Build: s.build, Built: s.took, Logger: slog.New(slog.NewTextHandler(s, nil)),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return watching{w}
}

// start runs the watch until the returned function is called.
func (w watching) start(t *testing.T) (end func()) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	return func() {
		stop()
		<-done
	}
}

// TestWrittenBeforeItRuns: changes between the first scan and Run are built.
func TestWrittenBeforeItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{t: t, root: t.TempDir()}
		s.write("main.go", "package main")
		w := s.begin()
		s.write("main.go", "package main // edited")
		end := w.start(t)
		s.later()
		s.want(1, 1)
		end()
	})
}

// Write collects the log.
func (s *source) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(line)
}

func (s *source) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// on makes builds fail with an error, and calls writes during the next one.
func (s *source) on(fails error, writes func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails, s.writes = fails, writes
}

func (s *source) took(context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.built++
}

func (s *source) build(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.builds++
	if s.writes != nil {
		s.writes()
		s.writes = nil
	}
	return s.fails
}

func (s *source) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// later waits until everything due is done.
func (s *source) later() {
	time.Sleep(10 * time.Second)
	synctest.Wait()
}

func (s *source) want(builds, built int) {
	s.t.Helper()
	log := s.said()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.builds != builds || s.built != built {
		s.t.Errorf("%d builds, %d of which went well; want %d and %d\n%s", s.builds, s.built, builds, built, log)
	}
}

func TestChangesAreBuilt(t *testing.T) {
	changes := map[string]func(*source){
		"a file that changes": func(s *source) { s.write("main.go", "package main // changed") },
		"a new file":          func(s *source) { s.write("deep/er/new.go", "package er") },
		"a file that goes": func(s *source) {
			if err := os.Remove(filepath.Join(s.root, "main.go")); err != nil {
				s.t.Fatal(err)
			}
		},
		"a file of the same size": func(s *source) {
			s.write("main.go", "package niam")
			at := time.Now().Add(time.Hour)
			if err := os.Chtimes(filepath.Join(s.root, "main.go"), at, at); err != nil {
				s.t.Fatal(err)
			}
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(s *source) {
				s.want(0, 0)
				change(s)
				s.later()
				s.want(1, 1)
			})
		})
	}
}

func TestOtherFilesAreNot(t *testing.T) {
	simulated(t, func(s *source) {
		s.write("bin/main", "another binary")
		s.write(".git/HEAD", "another")
		s.write(".main.go.swp", "an editor's")
		s.later()
		s.want(0, 0)
	})
}

// Many files written one after the other are one change.
func TestAChangeThatIsNotOverWaits(t *testing.T) {
	simulated(t, func(s *source) {
		for n := range 10 {
			s.write("main.go", strings.Repeat("x", n+1))
			time.Sleep(700 * time.Millisecond) // there is one between any two scans
		}
		s.want(0, 0)
		s.later()
		s.want(1, 1)
	})
}

func TestAChangeDuringABuildIsBuiltNext(t *testing.T) {
	simulated(t, func(s *source) {
		s.on(nil, func() { s.write("main.go", "package main // and more") })
		s.write("main.go", "package main // more")
		s.later()
		s.want(2, 2)
	})
}

// After a failed build nothing is reloaded, and the next change is built.
func TestAFailedBuild(t *testing.T) {
	simulated(t, func(s *source) {
		s.on(errors.New("main.go:1: expected package"), nil)
		s.write("main.go", "pakage main")
		s.later()
		s.want(1, 0)
		if log := s.said(); !strings.Contains(log, "expected package") || !strings.Contains(log, "files=[main.go]") {
			t.Errorf("the log does not say why: %s", log)
		}
		s.on(nil, nil)
		s.write("main.go", "package main")
		s.later()
		s.want(2, 1)
	})
}

func TestTheLogNamesAFewFiles(t *testing.T) {
	simulated(t, func(s *source) {
		for _, name := range strings.Fields("a b c d e f g") {
			s.write(name+".go", "package main")
		}
		s.later()
		if log := s.said(); !strings.Contains(log, "and 2 more") {
			t.Errorf("it is %s", log)
		}
	})
}

func TestAFolderThatIsNotThere(t *testing.T) {
	_, err := watch.Start(watch.Config{Root: filepath.Join(t.TempDir(), "missing"), Every: time.Second})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is %v", err)
	}
}
