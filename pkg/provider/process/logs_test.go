package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// TestLogsAreKept: the end of a deleted instance's log is kept, of the newest instances; a link in its
// place is not followed.
func TestLogsAreKept(t *testing.T) {
	f := newFixture(t)
	cfg := f.config(t, scope)
	cfg.Agent = filepath.Join(f.dir, "agent")
	secret := filepath.Join(f.dir, "secret")
	for path, text := range map[string]string{
		cfg.Agent: "#!/bin/sh\necho why it ended\nexit 7\n", secret: "not its own",
	} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // one of them is run
			t.Fatal(err)
		}
	}
	p := open(t, cfg)
	end := func(n int, before func(log string)) string {
		vm := create(t, p, spec(n))
		ref := provider.Ref{ID: vm.ID}
		eventually(t, "its end", func() bool { return state(t, p, ref) == provider.StateStopped })
		before(filepath.Join(f.folder(vm), "agent.log"))
		if errs := p.Delete(t.Context(), []provider.Ref{ref}); errs[0] != nil {
			t.Fatal(errs[0])
		}
		eventually(t, "its folder is gone", func() bool { return state(t, p, ref) == provider.StateDeleted })
		return filepath.Join(f.dir, vm.Tags[provider.TagShard], ".logs", vm.ProviderID+".log")
	}
	untouched := func(string) {}
	first := end(1, untouched)
	if text, err := os.ReadFile(first); err != nil || string(text) != "why it ended\n" {
		t.Errorf("kept %q, %v", text, err)
	}
	long := end(2, func(log string) {
		if err := os.WriteFile(log, []byte("begin"+strings.Repeat("x", 300<<10)+"end"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if text, err := os.ReadFile(long); err != nil || len(text) != 256<<10 || !strings.HasSuffix(string(text), "xend") {
		t.Errorf("kept %d bytes, %v", len(text), err)
	}
	link := end(3, func(log string) {
		if err := os.Remove(log); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(secret, log); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(link); err == nil {
		t.Error("another file was kept as its log")
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(first, old, old); err != nil {
		t.Fatal(err)
	}
	var newest []string
	for n := 4; n < 23; n++ {
		newest = append(newest, end(n, untouched))
	}
	kept, err := filepath.Glob(filepath.Join(filepath.Dir(first), "*"))
	if err != nil || len(kept) != 20 || slices.Contains(kept, first) || !slices.Contains(kept, long) || !slices.Contains(kept, newest[0]) {
		t.Errorf("kept %d logs, %v: %v", len(kept), err, kept)
	}
	elsewhere := filepath.Join(f.dir, "elsewhere")
	if err := errors.Join(os.Rename(filepath.Dir(first), elsewhere), os.Symlink(elsewhere, filepath.Dir(first))); err != nil {
		t.Fatal(err)
	}
	end(30, untouched)
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) != len(kept) {
		t.Errorf("behind a link there are %d files, %v", len(left), err)
	}
	if vms, err := p.List(t.Context()); err != nil || len(vms) != 0 {
		t.Errorf("list: %v, %v", vms, err)
	}
}
