package logs_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/logs"
)

// TestNew: each format has one event a line, and nothing below the level.
func TestNew(t *testing.T) {
	for format, first := range map[string]string{logs.Text: "time=", logs.JSON: `{"time":`} {
		var out bytes.Buffer
		log, err := logs.New(format, &out, slog.LevelInfo)
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("no")
		log.Warn("problem", slog.String("reason", "two\nlines"))
		if text := out.String(); !strings.HasPrefix(text, first) || strings.Count(text, "\n") != 1 || !strings.Contains(text, "problem") {
			t.Errorf("%s: %s", format, text)
		}
		var event struct{ Level, Msg, Reason string }
		if err := json.Unmarshal(out.Bytes(), &event); (err == nil) != (format == logs.JSON) {
			t.Errorf("%s: %v", format, err)
		} else if err == nil && (event.Msg != "problem" || event.Level != "WARN" || event.Reason != "two\nlines") {
			t.Errorf("%+v", event)
		}
	}
	for _, format := range []string{"", "JSON", "xml"} {
		if _, err := logs.New(format, nil, slog.LevelInfo); err == nil || !strings.Contains(err.Error(), "want text or json") {
			t.Errorf("%q: %v", format, err)
		}
	}
}
