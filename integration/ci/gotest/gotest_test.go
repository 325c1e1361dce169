package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m.Run) }

const head = "package p\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = fmt.Sprint\nvar _ = os.Getenv\n\n"

// once fails unless a file is there, which it makes.
const once = head + `func failsOnce(t *testing.T) {
	if f, err := os.OpenFile(os.Getenv("MARK"), os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		f.Close()
		t.Fatal("for the first time")
	}
}

func TestFine(t *testing.T) {}

`

// What depends on chance passes and is named; all that is wrong fails, although it would pass if it
// were run again.
func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		code  string
		fails bool
		says  string
	}{
		"fine":                 {head + "func TestA(t *testing.T) {}\n", false, ""},
		"once":                 {once + "func TestOnce(t *testing.T) { failsOnce(t) }\n", false, "CHANCE: example.com/m/p.TestOnce\n"},
		"once, in a part":      {once + "func TestOnce(t *testing.T) { t.Run(\"x\", failsOnce) }\n", false, "CHANCE: example.com/m/p.TestOnce\n"},
		"always":               {head + "func TestAlways(t *testing.T) { t.Fatal(\"wrong\") }\n", true, "TestAlways"},
		"does not compile":     {head + "func TestA(t *testing.T) { wrong }\n", true, "wrong"},
		"a panic":              {once + panics, true, "panic"},
		"a data race":          {once + "func TestOnce(t *testing.T) { fmt.Println(\"WARNING: DATA RACE\"); failsOnce(t) }\n", true, "DATA RACE"},
		"something left":       {once + leaves, true, "example.com/m/p\tbut none of its tests"},
		"more than four tests": {once + many, true, "TestOnce"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "p"), 0o755); err != nil {
				t.Fatal(err)
			}
			for path, text := range map[string]string{"go.mod": "module example.com/m\n\ngo 1.26\n", "p/p_test.go": c.code} {
				if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			root, err := filepath.Abs("../../..")
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv("GOTEST_ROOT", root)
			t.Setenv("MARK", filepath.Join(dir, "mark"))
			t.Chdir(dir)
			var out bytes.Buffer
			err = run(t.Context(), []string{"-count=1", "./..."}, &out)
			if (err != nil) != c.fails || !strings.Contains(out.String(), c.says) {
				t.Errorf("%v, want failed %t and %q in\n%s", err, c.fails, c.says, &out)
			}
			if c.fails && strings.Contains(out.String(), "CHANCE") {
				t.Errorf("a failure is called chance:\n%s", &out)
			}
		})
	}
}

const panics = `func TestOnce(t *testing.T) {
	if _, err := os.Stat(os.Getenv("MARK")); err == nil {
		return
	}
	os.WriteFile(os.Getenv("MARK"), nil, 0o600)
	go func() { panic("wrong") }()
	select {}
}
`

const leaves = `func TestMain(m *testing.M) {
	code := m.Run()
	if _, err := os.Stat(os.Getenv("MARK")); err != nil {
		os.WriteFile(os.Getenv("MARK"), nil, 0o600)
		fmt.Fprintln(os.Stderr, "FAIL: the tests left behind files")
		code = 1
	}
	os.Exit(code)
}
`

const many = `func one(t *testing.T, n string) {
	if f, err := os.OpenFile(os.Getenv("MARK")+n, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		f.Close()
		t.Fatal("for the first time")
	}
}

func TestOnce1(t *testing.T) { one(t, "1") }
func TestOnce2(t *testing.T) { one(t, "2") }
func TestOnce3(t *testing.T) { one(t, "3") }
func TestOnce4(t *testing.T) { one(t, "4") }
func TestOnce5(t *testing.T) { one(t, "5") }
`
