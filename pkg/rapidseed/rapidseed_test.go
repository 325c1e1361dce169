package rapidseed_test

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/rapidseed"
)

// The inputs are the same at each run.
func TestSeed(t *testing.T) {
	if os.Getenv(rapidseed.Variable) != "" {
		t.Skip("SKIPPED: " + rapidseed.Variable + " is set")
	}
	if seed := flag.Lookup("rapid.seed").Value.String(); seed != "1" {
		t.Errorf("the seed is %s, want 1", seed)
	}
	draw := func() (drawn []int) {
		rapid.Check(t, func(t *rapid.T) { drawn = append(drawn, rapid.Int().Draw(t, "n")) })
		return drawn
	}
	first, second := draw(), draw()
	for n := range first {
		if first[n] != second[n] {
			t.Fatalf("input %d is %d, and then %d", n, first[n], second[n])
		}
	}
}

// Each file of the project that imports rapid has the seed.
func TestEveryPropertyHasTheSeed(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "\t\"pgregory.net/rapid\"\n") {
			return err
		}
		found++
		if !strings.Contains(string(text), "nstance/pkg/rapidseed\"\n") {
			t.Errorf("%s imports pgregory.net/rapid without pkg/rapidseed", path)
		}
		return nil
	})
	if err != nil || found < 5 {
		t.Errorf("%d files import rapid: %v", found, err)
	}
}
