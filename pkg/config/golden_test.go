package config_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestEveryMistakeIsReported compares all problems of one invalid text with a reviewed list.
func TestEveryMistakeIsReported(t *testing.T) {
	text, err := os.ReadFile("testdata/mistakes.jsonc")
	if err != nil {
		t.Fatal(err)
	}
	for range 5 { // map order must not show
		golden(t, "testdata/mistakes.golden", problemsOf(t, string(text)))
	}
}

func problemsOf(t testing.TB, text string) string {
	t.Helper()
	shard, err := config.Parse([]byte(text))
	var problems config.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("Parse returned %v, %v: want Problems", shard, err)
	}
	if shard != nil {
		t.Fatal("Parse returned a shard beside an error")
	}
	var b strings.Builder
	for _, p := range problems {
		fmt.Fprintln(&b, p)
	}
	return b.String()
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Fatalf("differs from %s (-rewrite writes it anew):\n%s", file, got)
	}
}
