package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	all := []step{{name: "a"}, {name: "b"}, {name: "c"}, {name: "c1", needs: "b"}, {name: "c2", needs: "b"}}
	for _, c := range []struct {
		from, only, want, err string
	}{
		{want: "a b c c1 c2"},
		{from: "b", want: "b c c1 c2"},
		{from: "c", want: "b c c1 c2"},
		{only: "a,c2,c1", want: "a b c1 c2"},
		{only: "c,a", want: "a c"},
		{from: "d", err: `-from "d": no such step, valid are a, b, c, c1, c2`},
		{only: "a,d", err: `-only "d": no such step, valid are a, b, c, c1, c2`},
		{from: "a", only: "b", err: "-from a and -only b exclude each other"},
	} {
		got, err := choose(all, c.from, c.only)
		var names []string
		for _, s := range got {
			names = append(names, s.name)
		}
		if text := strings.Join(names, " "); text != c.want {
			t.Errorf("choose(%q, %q) = %s, want %s", c.from, c.only, text, c.want)
		}
		if (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("choose(%q, %q): error %v, want %q", c.from, c.only, err, c.err)
		}
	}
}

func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name, log string
		want      []string
	}{
		{"passed", "ok  \texample/a\t0.1s\n", nil},
		{"counted lines", "    --- FAIL: TestA/one (0.00s)\n--- FAIL: TestA (0.00s)\n--- FAIL: TestB (0.00s)\nFAIL\n[ 3/90] FAIL\tpkg/a\t0.2s\n",
			[]string{"pkg/a TestA/one", "pkg/a TestB"}},
		{"a build", "# example/a\na.go:1: syntax error\nFAIL\texample/a [build failed]\n", []string{"example/a [build failed]"}},
		{"a panic", "panic: test timed out\nFAIL\texample/a\t600.1s\n", []string{"example/a 600.1s"}},
		{"cut off", "--- FAIL: TestA (0.00s)\n", []string{"TestA"}},
		{"two packages", "--- FAIL: TestA (0s)\nFAIL\nFAIL\texample/a\t1s\n--- FAIL: TestB (0s)\nFAIL\nFAIL\texample/b\t1s\nFAIL\n",
			[]string{"example/a TestA", "example/b TestB"}},
		{"run again", "[ 3/90] FAIL\tpkg/a\t0.2s\n[ 4/90] FAIL\tpkg/b\t0.2s\n[ 5/90] FAIL\tpkg/c\t0.2s\n\n=== Failed\n" +
			"=== FAIL: pkg/a TestA/one (0.00s)\n=== FAIL: pkg/a TestA (0.00s)\n=== FAIL: pkg/b TestB (0.00s)\n" +
			"=== FAIL: pkg/c  (0.00s)\n=== FAIL: pkg/a TestA/one (re-run 1) (0.00s)\n=== FAIL: pkg/a TestA (re-run 1) (0.00s)\n" +
			"CHANCE: example.com/m/pkg/b.TestB\n", []string{"pkg/a TestA/one", "pkg/c"}},
	} {
		if got := failures(c.log); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// The messages of a failed test are printed with its name, without those of other tests.
func TestMessages(t *testing.T) {
	for _, c := range []struct {
		name, log, failed string
		want              []string
	}{
		{"told as it goes", "=== RUN   TestA\n    a_test.go:7: got 1\n        want 2\n--- FAIL: TestA (0s)\n" +
			"=== RUN   TestB\n    b_test.go:9: fine\nFAIL\tx\t1s\n", "x TestA", []string{"    a_test.go:7: got 1", "        want 2"}},
		{"told at the end", "--- FAIL: TestA (0s)\n    a_test.go:7: got 1\nFAIL\nFAIL\tx\t1s\n", "x TestA", []string{"    a_test.go:7: got 1"}},
		{"in turns", "=== CONT  TestA\n    a_test.go:7: one\n=== NAME  TestB\n    b_test.go:9: other\n=== NAME  TestA\n    a_test.go:8: two\n",
			"TestA", []string{"    a_test.go:7: one", "    a_test.go:8: two"}},
		{"much", "=== RUN   TestA\n    a_test.go:7: 1\n2\n3\n4\n5\n" + strings.Repeat("    a_test.go:8: more\n", 9), "TestA",
			append([]string{"    a_test.go:7: 1", "2", "3", "4"}, slices.Repeat([]string{"    a_test.go:8: more"}, 5)...)},
		{"a long line", "=== RUN   TestA\n    a_test.go:7: " + strings.Repeat("x", 1000) + "\n", "TestA",
			[]string{"    a_test.go:7: " + strings.Repeat("x", 283)}},
		{"run again", "=== Failed\n=== FAIL: x TestA (0.00s)\n    a_test.go:7: got 1\n=== FAIL: x TestB (0.00s)\n    b_test.go:7: got 2\n",
			"x TestA", []string{"    a_test.go:7: got 1"}},
		{"a package", "FAIL\tx [build failed]\n", "x [build failed]", nil},
	} {
		if got := messages(c.log, c.failed); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestParseStat(t *testing.T) {
	before, ok := parseStat("cpu  100 0 50 800 50 0 0 0 7 0\ncpu0 1 2 3\n")
	if want := (stat{idle: 850, total: 1000}); !ok || before != want {
		t.Fatalf("%v, %v, want %v", before, ok, want)
	}
	for _, text := range []string{"", "cpu", "cpu  1 2 3 4 x", "intr 1 2 3 4 5 6"} {
		if got, ok := parseStat(text); ok {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	if !(stat{idle: 1040, total: 1200}).mostlyIdleSince(before) {
		t.Error("190 idle ticks of 200 do not count as idle")
	}
	if (stat{idle: 1000, total: 1200}).mostlyIdleSince(before) {
		t.Error("150 idle ticks of 200 count as idle")
	}
	if before.mostlyIdleSince(before) {
		t.Error("no time at all counts as idle")
	}
}

// A failed step is reported with its test, its log and the commands that repeat it.
func TestFailureSaysWhatToDo(t *testing.T) {
	var out bytes.Buffer
	r := runner{name: "make ci", out: &out, logs: t.TempDir(), env: os.Environ()}
	s := step{name: "unit", command: []string{"sh", "-c", "printf -- '--- FAIL: TestA (0s)\\nFAIL\\texample/a\\t1s\\n'; exit 3"}}
	c, err := r.run(context.Background(), s, &out)
	if err == nil || c.name != "unit" {
		t.Fatalf("%v, %v, want an error of unit", c, err)
	}
	text := r.failure(s, err).Error()
	for _, want := range []string{
		"FAILED: step unit: exit status 3", "example/a TestA", filepath.Join(r.logs, "unit.log"), "make ci ONLY=unit", "make ci FROM=unit",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the failure lacks %q:\n%s", want, text)
		}
	}
	if !strings.Contains(out.String(), "--- FAIL: TestA") {
		t.Errorf("the step's output is not shown:\n%s", &out)
	}
}
