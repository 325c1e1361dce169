package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long a changed file must be unchanged before it is read: editors write in
	// steps, and may remove a file before they replace it.
	quiet = 100 * time.Millisecond
	// patience bounds that for a file that keeps changing.
	patience = 500 * time.Millisecond
)

// Run applies manual edits of files, and expires leases, until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	notify, err := fsnotify.NewBufferedWatcher(4096)
	if err != nil {
		return fmt.Errorf("watch %s: %w", s.root, err)
	}
	defer func() { _ = notify.Close() }()
	go s.expiring(ctx)
	w := &watcher{store: s, notify: notify, waiting: map[string]turn{}}
	if err := w.add("."); err != nil {
		return fmt.Errorf("watch %s: %w", s.root, err)
	}
	return w.run(ctx)
}

// turn is when a file is read: at due, which each change postpones, but not after last.
type turn struct{ due, last time.Time }

type watcher struct {
	store   *Store
	notify  *fsnotify.Watcher
	waiting map[string]turn
}

func (w *watcher) run(ctx context.Context) error {
	tick := time.NewTicker(quiet / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-w.notify.Events:
			w.see(event)
		case err := <-w.notify.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err
			}
			if err := w.add("."); err != nil { // events were lost: check all files
				return err
			}
		case now := <-tick.C:
			w.look(now)
		}
	}
}

// look reads the files that are due.
func (w *watcher) look(now time.Time) {
	for path, t := range w.waiting {
		if now.After(t.due) {
			delete(w.waiting, path)
			w.store.Take(path)
		}
	}
}

func (w *watcher) see(event fsnotify.Event) {
	path, err := filepath.Rel(w.store.root, event.Name)
	if err != nil {
		return
	}
	path = filepath.ToSlash(path)
	switch {
	case hidden(path):
	case isObject(path):
		w.later(path)
	case event.Has(fsnotify.Create): // maybe a folder
		if err := w.add(path); err != nil {
			w.store.log.Error("watch a folder", slog.String("folder", path), slog.Any("error", err))
		}
	case event.Has(fsnotify.Remove), event.Has(fsnotify.Rename):
		// A folder that is moved away takes its files along without events.
		for _, file := range w.store.below(path) {
			w.later(file)
		}
	}
}

func (w *watcher) later(path string) {
	now := time.Now()
	t, waits := w.waiting[path]
	if !waits {
		t.last = now.Add(patience)
	}
	t.due = now.Add(quiet)
	if t.due.After(t.last) {
		t.due = t.last
	}
	w.waiting[path] = t
}

// add watches a folder and its subfolders, and checks the files in them: they may be older
// than the watch.
func (w *watcher) add(folder string) error {
	err := filepath.WalkDir(filepath.Join(w.store.root, folder), func(full string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.IsDir() {
			return err
		}
		if full != w.store.root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if err := w.notify.Add(full); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	paths, err := scan(w.store.root, folder)
	for _, path := range paths {
		w.later(path)
	}
	if folder == "." {
		for _, path := range w.store.below("") {
			w.later(path)
		}
	}
	return err
}
