// Command tables writes the tables of inputs and outputs in the READMEs of the modules in
// terraform/, from their variables and outputs:
//
//	go run -C integration/terraform ./tables
//
// A table is between the lines <!-- BEGIN TABLES --> and <!-- END TABLES -->.
package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	begin = "<!-- BEGIN TABLES -->"
	end   = "<!-- END TABLES -->"
)

func main() {
	if err := run(filepath.Join("..", "..", "terraform", "aws")); err != nil {
		fmt.Fprintln(os.Stderr, "tables:", err)
		os.Exit(1)
	}
}

// run writes the README of each module in a folder.
func run(root string) error {
	folders, err := modules(root)
	if err != nil {
		return err
	}
	if len(folders) == 0 {
		return fmt.Errorf("%s: want folders with *.tf", root)
	}
	for _, folder := range folders {
		if err := write(folder); err != nil {
			return err
		}
	}
	return nil
}

// modules returns the folders with *.tf files, except those of tests.
func modules(root string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".terraform", "tests"}, entry.Name()):
			return filepath.SkipDir
		case filepath.Ext(path) == ".tf" && !slices.Contains(out, filepath.Dir(path)):
			out = append(out, filepath.Dir(path))
		}
		return nil
	})
	return out, err
}

func write(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.tf"))
	if err != nil {
		return err
	}
	var all module
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := all.read(file, text); err != nil {
			return err
		}
	}
	readme := filepath.Join(folder, "README.md")
	before, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	after, err := replaced(before, all.tables())
	if err != nil {
		return fmt.Errorf("%s: %w", readme, err)
	}
	if bytes.Equal(before, after) {
		return nil
	}
	return os.WriteFile(readme, after, 0o644) //nolint:gosec // a public page
}

// replaced replaces the old tables.
func replaced(page []byte, tables string) ([]byte, error) {
	head, rest, ok := strings.Cut(string(page), begin+"\n")
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return nil, fmt.Errorf("want a line %s and, after it, a line %s", begin, end)
	}
	return []byte(head + begin + "\n\n" + tables + "\n" + end + tail), nil
}
