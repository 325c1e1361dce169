// Package logs makes the loggers of programs.
package logs

import (
	"fmt"
	"io"
	"log/slog"
)

// The formats, both with one event a line.
const (
	Text = "text" // key=value
	JSON = "json"
)

// New returns a logger that writes events of at least a level to w in a format. An error says which
// formats are valid.
func New(format string, w io.Writer, level slog.Leveler) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case Text:
		return slog.New(slog.NewTextHandler(w, options)), nil
	case JSON:
		return slog.New(slog.NewJSONHandler(w, options)), nil
	default:
		return nil, fmt.Errorf("%.80q is not a log format: want %s or %s", format, Text, JSON)
	}
}
