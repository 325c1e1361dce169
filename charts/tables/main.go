// Command tables writes the table of values in the README of the operator's chart, from the
// comments in its values.yaml:
//
//	go run ./charts/tables
//
// The table is between the lines <!-- BEGIN TABLES --> and <!-- END TABLES -->.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	chart = "charts/nstance-operator"
	begin = "<!-- BEGIN TABLES -->"
	end   = "<!-- END TABLES -->"
)

func main() {
	if err := run(chart); err != nil {
		fmt.Fprintln(os.Stderr, "tables:", err)
		os.Exit(1)
	}
}

// run writes the table into the README of the chart in a folder.
func run(folder string) error {
	file := filepath.Join(folder, "values.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	values, err := read(text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	readme := filepath.Join(folder, "README.md")
	page, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(page), begin+"\n")
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s: want a line %s followed by a line %s", readme, begin, end)
	}
	written := head + begin + "\n\n" + table(values) + "\n" + end + tail
	if written == string(page) {
		return nil
	}
	return os.WriteFile(readme, []byte(written), 0o644) //nolint:gosec // a public page
}
