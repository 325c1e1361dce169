package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/yaml"
)

// format is how results are printed.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
	// Of tables: with everything in their cells, and the names alone.
	formatWide format = "wide"
	formatName format = "name"
)

// parseFormat parses --output. Only commands that print a list have the formats wide and name.
func parseFormat(s string, lists bool) (format, error) {
	switch f := format(s); {
	case f == formatTable, f == formatJSON, f == formatYAML, lists && (f == formatWide || f == formatName):
		return f, nil
	case lists:
		return "", usagef("--output: %.40q is not valid: want table, wide, name, json or yaml", s)
	default:
		return "", usagef("--output: %.40q is not valid: want table, json or yaml", s)
	}
}

// column is one column of a table.
type column[T any] struct {
	title string
	cell  func(T) string
}

// date formats a time for a table; empty for nil.
func date(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format(time.RFC3339)
}

// printAll prints rows as a table, or everything about them as JSON or YAML.
func printAll[T any](w io.Writer, f format, rows []T, columns []column[T]) error {
	rows, err := sorted(w, rows, columns)
	if err != nil {
		return err
	}
	if f != formatTable {
		return printValue(w, f, rows)
	}
	t := table[T]{w: w, columns: columns}
	return t.print(rows)
}

// printValue prints v in full. In table format it prints YAML.
func printValue(w io.Writer, f format, v any) error {
	if f == formatJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("print as YAML: %w", err)
	}
	out, err := yaml.JSONToYAML([]byte(escaped(text))) // package yaml takes control characters only as escapes
	if err != nil {
		return fmt.Errorf("print as YAML: %w", err)
	}
	_, err = w.Write(out)
	return err
}

// done prints the outcome: words in table format, v as JSON or YAML otherwise.
func (a *app) done(w io.Writer, words string, v any) error {
	if a.format != formatTable {
		return printValue(w, a.format, v)
	}
	_, err := fmt.Fprintln(w, words)
	return err
}

// lineWriter is a writer for concurrent use. It writes whole lines, with nothing that a terminal would interpret.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := io.WriteString(l.w, plain(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}
