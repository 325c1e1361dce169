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

// What is kept is how long a server that has been healthy is silent: "silent 4s". It is a
// time that was measured, and no date, because a machine's clock may be set meanwhile.
const keptForm = "silent %s\n"

// keep has the state file say how long the server has been silent. One that was never
// healthy is as one of which nothing is known.
func (w *watch) keep(ctx context.Context, silent time.Duration) {
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
		w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "what was seen can't be kept", slog.Any("error", err))
	}
	w.unkept = err != nil
}

// recall goes on where the last start ended. What it can't read is as if it were not there.
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
		w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "what was seen before is not known",
			slog.String("file", w.cfg.StateFile), slog.Any("error", err))
		return
	}
	w.state.Healthy, w.state.Silence = true, silent
	w.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "the server was healthy before", slog.Duration("silent", silent))
}

// parseKept reads what keep has written. No silence counts for more than an hour, the
// longest that a server may be allowed.
func parseKept(text string) (time.Duration, error) {
	value, found := strings.CutPrefix(strings.TrimSpace(text), "silent ")
	silent, err := time.ParseDuration(value)
	if !found || err != nil || silent < 0 {
		return 0, fmt.Errorf("%.80q is not valid: want such as \"silent 4s\"", text)
	}
	return min(silent, time.Hour), nil
}

// replaceFile writes a file that is there whole or not at all.
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
		_ = os.Remove(f.Name()) // the first error says more
	}
	return err
}
