// Package watch has programs built anew when a file of their source changes.
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

// Config says what is watched, and what then happens.
type Config struct {
	Root string // the folder of the source
	// Skip are folders in it, absolute or relative to the working directory, whose files
	// mean nothing. Nor do those whose names begin with a dot.
	Skip  []string
	Every time.Duration // from one look to the next
	// Build builds the programs. After an error the next change has it tried again.
	Build func(context.Context) error
	// Built is called after a build that went well.
	Built  func(context.Context)
	Logger *slog.Logger
}

// Watch is a source as it was when the programs were last built of it.
type Watch struct {
	config Config
	built  map[string]stamp
}

// Begin takes the first look, which is what later ones are compared with: what changes
// before Run is built too.
func Begin(c Config) (*Watch, error) {
	built, err := c.look()
	if err != nil {
		return nil, fmt.Errorf("watch the source: %w", err)
	}
	return &Watch{c, built}, nil
}

// Run watches until ctx ends. A change counts once two looks saw the same, so that who
// writes many files is done with it. It is called once.
func (w *Watch) Run(ctx context.Context) {
	c, built := w.config, w.built
	last := built
	for retry.Wait(ctx, c.Every) == nil {
		now, err := c.look()
		if errors.Is(err, fs.ErrNotExist) { // gone while it looked: the next look sees that
			continue
		}
		if err != nil {
			c.Logger.LogAttrs(ctx, slog.LevelWarn, "can't look for changes of the source", slog.Any("error", err))
			continue
		}
		settled := maps.Equal(now, last)
		last = now
		if !settled || maps.Equal(now, built) {
			continue
		}
		c.Logger.LogAttrs(ctx, slog.LevelInfo, "building what changed", slog.Any("files", differ(built, now)))
		built = now // what changes from here on is for the next time
		if err := c.Build(ctx); err != nil {
			if ctx.Err() == nil {
				c.Logger.LogAttrs(ctx, slog.LevelError, "the build failed; what runs goes on", slog.Any("error", err))
			}
			continue
		}
		c.Built(ctx)
	}
}

// stamp changes with a file's content.
type stamp struct{ size, modified int64 }

// look returns the stamps of all files, by their paths below the root.
func (c Config) look() (map[string]stamp, error) {
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

// told is how many files a message names at most.
const told = 5

// differ are files that only one of two looks saw, or that changed between them.
func differ(a, b map[string]stamp) (names []string) {
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
	if more := len(names) - told; more > 0 {
		names = append(names[:told], fmt.Sprintf("and %d more", more))
	}
	return names
}
