package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"
)

// format is how results are printed.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
)

func parseFormat(s string) (format, error) {
	switch f := format(s); f {
	case formatTable, formatJSON, formatYAML:
		return f, nil
	default:
		return "", usagef("--output: %.40q is not valid: want table, json or yaml", s)
	}
}

// column is one column of a table.
type column[T any] struct {
	title string
	cell  func(T) string
}

// date is how a table shows a time; nil: there is none.
func date(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Format(time.RFC3339)
}

// printAll prints rows as a table, or everything about them as JSON or YAML.
func printAll[T any](w io.Writer, f format, rows []T, columns []column[T]) error {
	if f != formatTable {
		return printValue(w, f, rows)
	}
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	fmt.Fprintln(tw, strings.Join(titles, "\t"))
	for _, r := range rows {
		cells := make([]string, len(columns))
		for i, c := range columns {
			if cells[i] = c.cell(r); cells[i] == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// printValue prints v whole. A table of one thing is YAML, which people read.
func printValue(w io.Writer, f format, v any) error {
	if f == formatJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	out, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Errorf("print as YAML: %w", err)
	}
	_, err = w.Write(out)
	return err
}

// done reports what was done: in words, or as JSON or YAML where that is asked for.
func (a *app) done(w io.Writer, words string, v any) error {
	if a.format != formatTable {
		return printValue(w, a.format, v)
	}
	_, err := fmt.Fprintln(w, words)
	return err
}

// lineWriter lets several goroutines write, a line at a time.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
