// Package watch rebuilds programs when their source changes.
package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// Config configures a Watch.
type Config struct {
	Root string // the folder of the source
	// Skip lists ignored folders, absolute or relative to the working directory. Folders whose
	// names begin with a dot are ignored too.
	Skip  []string
	Every time.Duration // polling interval
	// Build builds the programs. After an error it is retried at the next change.
	Build func(context.Context) error
	// Built is called after a successful build.
	Built  func(context.Context)
	Logger *slog.Logger
}

// Watch is the state of the source at the last build.
type Watch struct {
	config Config
	built  map[string]stamp
}

// Start scans the source for the first time, so that changes before Run are built too.
func Start(c Config) (*Watch, error) {
	built, err := c.scan()
	if err != nil {
		return nil, fmt.Errorf("watch the source: %w", err)
	}
	return &Watch{c, built}, nil
}

// Run watches until ctx ends. A change is built once two scans in a row agree, so that a write
// of many files is complete. It must be called once.
func (w *Watch) Run(ctx context.Context) {
	c, built := w.config, w.built
	last := built
	for retry.Wait(ctx, c.Every) == nil {
		now, err := c.scan()
		if errors.Is(err, fs.ErrNotExist) { // deleted during the scan: the next one sees that
			continue
		}
		if err != nil {
			c.Logger.LogAttrs(ctx, slog.LevelWarn, "scanning the source failed", slog.Any("error", err))
			continue
		}
		settled := maps.Equal(now, last)
		last = now
		if !settled || maps.Equal(now, built) {
			continue
		}
		c.Logger.LogAttrs(ctx, slog.LevelInfo, "building changes", slog.Any("files", changedFiles(built, now)))
		built = now // later changes are built next time
		if err := c.Build(ctx); err != nil {
			if ctx.Err() == nil {
				c.Logger.LogAttrs(ctx, slog.LevelError, "build failed; the running programs continue", slog.Any("error", err))
			}
			continue
		}
		c.Built(ctx)
	}
}

// stamp identifies a version of a file.
type stamp struct{ size, modified int64 }

// scan returns the stamps of all files by path below the root.
func (c Config) scan() (map[string]stamp, error) {
	skip := map[string]bool{}
	for _, folder := range c.Skip {
		abs, err := filepath.Abs(folder)
		if err != nil {
			return nil, err
		}
		skip[abs] = true
	}
	root, err := filepath.Abs(c.Root)
	if err != nil {
		return nil, err
	}
	all := map[string]stamp{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == root:
			return nil
		case d.IsDir() && (skip[path] || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !d.Type().IsRegular() || strings.HasPrefix(d.Name(), "."):
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all[strings.TrimPrefix(path, root+string(filepath.Separator))] = stamp{info.Size(), info.ModTime().UnixNano()}
		return nil
	})
	return all, err
}

// maxNamed is the maximum number of files in a message.
const maxNamed = 5

// changedFiles returns the files that differ between two scans.
func changedFiles(a, b map[string]stamp) (names []string) {
	for name, stamp := range b {
		if was, ok := a[name]; !ok || was != stamp {
			names = append(names, name)
		}
	}
	for name := range a {
		if _, ok := b[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return names
}
