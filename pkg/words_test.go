package pkg_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// persons are words for persons where a sentence means a thing: the caller, the record, no
// other writer. They are written in halves, for this file is read too.
var persons = regexp.MustCompile(`(?i)\b(?:(?:some|any|every|no)(?:body)|(?:some|any|every)(?:one)|who(?:ever))\b`)

// personsMeant are texts that have to be as they are, by file.
func personsMeant() map[string]string {
	return map[string]string{
		"images/base/base.go": "no" + "body:x:65534:65534:no" + "body:", // an account in passwd
		"nix/tests/shard.nix": "su -s /bin/sh no" + "body -c",           // that account
		"pkg/rpc/access.go":   `"any` + `one"`,                          // the value of a constant of that name
	}
}

// TestPersons: comments, texts in code, pages, modules and manifests speak of things. Of a
// Go file the names are free, in its comments too.
func TestPersons(t *testing.T) {
	meant, read := personsMeant(), 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(path), "../")
		if d.IsDir() {
			if unread(name) {
				return filepath.SkipDir
			}
			return nil
		}
		if !readable(name) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read++
		source := string(text)
		if m, ok := meant[name]; ok && strings.Contains(source, m) {
			source = strings.ReplaceAll(source, m, persons.ReplaceAllString(m, "x"))
			delete(meant, name)
		}
		for _, found := range personsIn(t, name, source) {
			t.Errorf("%s: write what it is instead, such as the caller, the record, no other writer", found)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if read < 500 {
		t.Errorf("read %d files: the walk looks in the wrong place", read)
	}
	for name, text := range meant {
		t.Errorf("%s has no %q any more, and needs no exception", name, text)
	}
}

// unread reports whether a folder is left out: no part of the repository, or not read yet.
func unread(folder string) bool {
	name := folder[strings.LastIndex(folder, "/")+1:]
	hidden := strings.HasPrefix(name, ".") && !slices.Contains([]string{"..", ".ci", ".github"}, name)
	return hidden || folder == "bin" || folder == "temp"
}

// readable reports whether a file is text that people read.
func readable(name string) bool {
	return filepath.Base(name) == "Makefile" || slices.Contains(
		[]string{".go", ".md", ".proto", ".tf", ".tftpl", ".nix", ".yaml", ".yml", ".jsonc", ".service", ".sh"}, filepath.Ext(name))
}

// personsIn returns file, line and word of each find in a file.
func personsIn(t *testing.T, name, source string) (found []string) {
	t.Helper()
	if filepath.Ext(name) != ".go" {
		return personsAt(name, 1, source, nil)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			names[n.Name] = true
		case *ast.BasicLit:
			found = append(found, personsAt(name, files.Position(n.Pos()).Line, n.Value, nil)...)
		}
		return true
	})
	for _, group := range file.Comments {
		for _, c := range group.List {
			found = append(found, personsAt(name, files.Position(c.Pos()).Line, c.Text, names)...)
		}
	}
	return found
}

// personsAt returns what is found in a text that begins at a line, but for those names.
func personsAt(file string, line int, text string, names map[string]bool) (found []string) {
	for _, at := range persons.FindAllStringIndex(text, -1) {
		if word := text[at[0]:at[1]]; !names[word] {
			found = append(found, file+":"+strconv.Itoa(line+strings.Count(text[:at[0]], "\n"))+": "+word)
		}
	}
	return found
}

// TestPersonsAreFound wherever they may stand, and names are not.
func TestPersonsAreFound(t *testing.T) {
	const lower, upper = "some" + "body", "Some" + "body"
	for name, c := range map[string]struct {
		file, text string
		want       []string
	}{
		"a page":           {"a.md", "First\n" + upper + " did.", []string{"a.md:2: " + upper}},
		"a comment":        {"a.go", "package a\n\n// " + upper + "'s.\nvar a int\n", []string{"a.go:3: " + upper}},
		"behind code":      {"a.go", "package a\n\nvar a int // " + lower + "\n", []string{"a.go:3: " + lower}},
		"a text":           {"a.go", "package a\n\nvar a = \"" + lower + "\"\n", []string{"a.go:3: " + lower}},
		"a text of lines":  {"a.go", "package a\n\nvar a = `\n\n" + lower + "`\n", []string{"a.go:5: " + lower}},
		"a name":           {"a.go", "package a\n\n// " + lower + " is 1.\nvar " + lower + " = 1\n", nil},
		"a part of a name": {"a.go", "package a\n\n// Has" + upper + " does.\nfunc Has" + upper + "() {}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := personsIn(t, c.file, c.text); !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}
