package config_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
)

// TestLocate: the position of each kind of path.
func TestLocate(t *testing.T) {
	long := strings.Repeat("ä", 90)
	text := `{
  // a comment with "groups": {
  "groups": {
    "default": { "web": { "size": -1 } }, /* é */ "blue": {}
  },
  "list": [ "a", { "b": [1, 2] } ],
  "a.b": { "c": 1 },
  "` + long + `": 1
}`
	for path, want := range map[string]string{
		"groups.default.web.size":             "line 4, column 27",
		"groups.default.web.missing":          "line 4, column 18",
		"groups.blue":                         "line 4, column 52",
		"list[0]":                             "line 6, column 13",
		"list[1].b[1]":                        "line 6, column 29",
		"list[7].b":                           "line 6, column 3",
		`["a.b"].c`:                           "line 7, column 12",
		"none.at.all":                         "line 1, column 1",
		"..":                                  "line 1, column 1",
		`["` + strings.Repeat("ä", 80) + `"]`: "line 8, column 3",
	} {
		got := config.Locate([]byte(text), config.Problems{{Path: path, Message: "wrong"}})
		if want += ": " + path + ": wrong"; len(got) != 1 || got.Error() != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	got := config.Locate([]byte(text), config.Problems{{Path: "list[1]", Message: "b"}, {Path: "groups", Message: "a"}, {Message: "c"}})
	if want := "3 problems:\n  c\n  line 3, column 3: groups: a\n  line 6, column 18: list[1]: b"; got.Error() != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// TestLocateMistakes: each mistake of an invalid config that names a field has a position, and
// its line has the last key that exists.
func TestLocateMistakes(t *testing.T) {
	text, err := os.ReadFile("testdata/mistakes.jsonc")
	if err != nil {
		t.Fatal(err)
	}
	_, err = config.Parse(text)
	var all config.Located
	if !errors.As(config.LocateError(text, err), &all) || len(all) < 10 {
		t.Fatalf("only %v", all)
	}
	atRoot := 0
	for _, p := range all {
		if p.Path != "" && p.Line == 0 {
			t.Errorf("%v has no position", p)
		}
		if p.Line == 1 && p.Column == 1 {
			atRoot++
		}
	}
	if atRoot > len(all)/4 {
		t.Errorf("%d of %d are at the beginning of the text: %v", atRoot, len(all), all)
	}
}

// TestLocateErrorKeepsOthers: an error that is no problem of the text stays, and a syntax error
// keeps its own position.
func TestLocateErrorKeepsOthers(t *testing.T) {
	if err := config.LocateError(nil, os.ErrNotExist); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := config.LocateError(nil, nil); err != nil {
		t.Errorf("got %v", err)
	}
	text := []byte("{\n  \"a\": }")
	_, err := config.Parse(text)
	if got := config.LocateError(text, err); got.Error() != err.Error() || !strings.Contains(got.Error(), "line 2") {
		t.Errorf("got %v, was %v", got, err)
	}
}

// FuzzLocate: whatever text and path, a position is in the text, and no problem is lost.
func FuzzLocate(f *testing.F) {
	for _, path := range []string{"groups.default.web.size", "a[1].b", `["x.y"].z`, `["\ud800"]`, "[", ".", "a[99999999999]", `[""]`} {
		f.Add([]byte(`{"groups": {"default": {}}, "a": [1, {"b": 2}], "x.y": {"z": 1}}`), path)
	}
	f.Fuzz(func(t *testing.T, text []byte, path string) {
		got := config.Locate(text, config.Problems{{Path: path, Message: "m"}, {Message: "n"}})
		if len(got) != 2 || got.Error() == "" {
			t.Fatalf("%q: %v", path, got)
		}
		lines := strings.Split(string(text), "\n")
		for _, p := range got {
			if p.Line == 0 {
				continue
			}
			if p.Line < 1 || p.Line > len(lines) || p.Column < 1 || p.Column > len(lines[p.Line-1])+1 {
				t.Fatalf("%q: line %d, column %d of %q", path, p.Line, p.Column, text)
			}
		}
	})
}
