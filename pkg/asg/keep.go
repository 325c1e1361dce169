package asg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The state file holds how long a once healthy server has been silent, such as "silent 4s": a
// measured duration rather than a timestamp, as the machine's clock may be changed meanwhile.
const keptForm = "silent %s\n"

// writeState writes the server's silence to the state file. A server that was never healthy has
// no state.
func (w *watch) writeState(ctx context.Context, silent time.Duration) {
	if w.cfg.StateFile == "" || !w.state.Healthy {
		return
	}
	text := fmt.Sprintf(keptForm, silent.Truncate(time.Millisecond))
	if text == w.kept {
		return
	}
	err := replaceFile(w.cfg.StateFile, text)
	if err == nil {
		w.kept = text
	} else if !w.unkept {
		w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "writing the state file failed", slog.Any("error", err))
	}
	w.unkept = err != nil
}

// recall restores the state of the previous run. An unreadable state file counts as missing.
func (w *watch) recall(ctx context.Context) {
	if w.cfg.StateFile == "" {
		return
	}
	text, err := os.ReadFile(w.cfg.StateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var silent time.Duration
	if err == nil {
		silent, err = parseKept(string(text))
	}
	if err != nil {
		w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "reading the state file failed",
			slog.String("file", w.cfg.StateFile), slog.Any("error", err))
		return
	}
	w.state.Healthy, w.state.Silence = true, silent
	w.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "restored state of a healthy server", slog.Duration("silent", silent))
}

// parseKept parses the state file. Silence is capped at an hour, the maximum of LostAfter.
func parseKept(text string) (time.Duration, error) {
	value, found := strings.CutPrefix(strings.TrimSpace(text), "silent ")
	silent, err := time.ParseDuration(value)
	if !found || err != nil || silent < 0 {
		return 0, fmt.Errorf("%.80q is not valid: want a duration such as \"silent 4s\"", text)
	}
	return min(silent, time.Hour), nil
}

// replaceFile replaces a file atomically.
func replaceFile(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".state-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is the cause
	}
	return err
}
