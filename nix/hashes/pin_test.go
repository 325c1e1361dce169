package main

import (
	"encoding/json"
	"go/version"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestPin compares what is recorded beside the pin of nixpkgs with that, and the Go there with
// what the modules ask for: in the flake's shell no other Go is fetched.
func TestPin(t *testing.T) {
	root := filepath.Join("..", "..")
	read := func(path string, into any) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	var pin struct{ Nixpkgs, Go string }
	var lock struct {
		Nodes struct {
			Nixpkgs struct{ Locked struct{ Rev string } }
		}
	}
	read("nix/pin.json", &pin)
	read("flake.lock", &lock)
	if rev := lock.Nodes.Nixpkgs.Locked.Rev; rev != pin.Nixpkgs {
		t.Errorf("nix/pin.json is of nixpkgs %s, and flake.lock of %s", pin.Nixpkgs, rev)
	}
	modules, err := filepath.Glob(filepath.Join(root, ".ci", "tools", "*.mod"))
	if err != nil || len(modules) == 0 {
		t.Fatalf("no tool modules (%v)", err)
	}
	asks := regexp.MustCompile(`(?m)^(?:go|toolchain) (?:go)?(\S+)$`)
	for _, path := range append(modules, filepath.Join(root, "go.mod"), filepath.Join(root, "cmd", "dev-k8s", "go.mod")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := asks.FindAllSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("%s asks for no Go", path)
		}
		for _, line := range found {
			if version.Compare("go"+string(line[1]), "go"+pin.Go) > 0 {
				t.Errorf("%s asks for Go %s, and the pin has %s", path, line[1], pin.Go)
			}
		}
	}
}
