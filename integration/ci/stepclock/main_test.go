package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m.Run) }

// TestOverlay: the overlay fits the Go that is used, and names files that exist.
func TestOverlay(t *testing.T) {
	path, err := overlay(t.Context(), []string{t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var o struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &o); err != nil || len(o.Replace) != 2 {
		t.Fatalf("got %s: %v", text, err)
	}
	for of, by := range o.Replace {
		source, err := os.ReadFile(by)
		if err != nil || !strings.Contains(string(source), "clockSteps") {
			t.Errorf("%s is replaced by %s, which does not move the clock: %v", of, by, err)
		}
	}
}

func TestUsage(t *testing.T) {
	if _, err := overlay(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "stepclock DIR") {
		t.Errorf("got %v", err)
	}
}
