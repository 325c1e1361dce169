package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/leaktest"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == busy {
		main()
	}
	leaktest.Main(m.Run)
}

// A module whose test passes as often as the file left says, and then fails.
func module(t *testing.T, passes string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module example\ngo 1.26\n",
		"none/none.go": "package none\n",
		"sure/a_test.go": `package sure
import "testing"
func TestSure(*testing.T) {}
`,
		"flaky/left": passes,
		"flaky/a_test.go": `package flaky
import ("os"; "testing")
func TestFlaky(t *testing.T) {
	left, err := os.ReadFile("left")
	if err != nil || len(left) == 0 {
		t.Fatal("no passes are left:", err)
	}
	if err := os.WriteFile("left", left[1:], 0o600); err != nil {
		t.Fatal(err)
	}
}
func TestOther(*testing.T) {}
`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

func TestDeflake(t *testing.T) {
	for name, c := range map[string]struct {
		passes, args string
		out, err     []string // empty: no error
	}{
		"a package that fails is named": {
			passes: "xx", args: "./...", out: []string{"packages with tests: 2", "round 2 passed", "round 3: example/flaky: failed after"},
			err: []string{"round 3 failed, after 2 that passed", "example/flaky: temp/deflake/example_flaky.log"},
		},
		"rounds end":           {passes: "xxx", args: "-times 3 ./flaky", out: []string{"round 3 passed"}},
		"beside a load":        {passes: "x", args: "-times 1 -load 1 ./...", out: []string{"round 1 passed"}},
		"some of the tests":    {args: "-times 2 -run TestOther ./flaky", out: []string{"round 2 passed"}},
		"no package":           {err: []string{"make deflake PKG="}},
		"none that has tests":  {args: "./none", err: []string{"./none: no package that has tests"}},
		"one that is not":      {args: "./nothing", err: []string{"go list ./nothing"}},
		"less than no rounds":  {args: "-times -1 ./flaky", err: []string{"negative"}},
		"less than no process": {args: "-load -1 ./flaky", err: []string{"negative"}},
	} {
		t.Run(name, func(t *testing.T) {
			module(t, c.passes)
			var out bytes.Buffer
			err := run(t.Context(), strings.Fields(c.args), &out)
			if (err == nil) != (len(c.err) == 0) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			for _, want := range c.err {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q in it", err, want)
				}
			}
			for _, want := range c.out {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output %q, want %q in it", &out, want)
				}
			}
		})
	}
}
