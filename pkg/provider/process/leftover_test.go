package process_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
)

// TestAgentThatCannotStart: an executable file that is not a program.
func TestAgentThatCannotStart(t *testing.T) {
	f := newFixture(t)
	cfg := f.config(t, scope)
	cfg.Agent = filepath.Join(f.dir, "agent")
	if err := os.WriteFile(cfg.Agent, []byte("\x7fELF but not really"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := open(t, cfg)
	if _, err := p.Create(t.Context(), spec(1)); !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), "options.agent") {
		t.Errorf("create of no program: %v", err)
	}
	if got := state(t, p, provider.Ref{ID: spec(1).ID}); got != provider.StateDeleted {
		t.Errorf("what could not start left something %s", got)
	}
	if err := os.Remove(cfg.Agent); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Create(t.Context(), spec(2)); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("create without the binary: %v", err)
	}
	if got := state(t, p, provider.Ref{ID: spec(2).ID}); got != provider.StateDeleted {
		t.Errorf("a definite failure left something %s", got)
	}
}

// TestLostState: the folder has a running process, but not its tags.
func TestLostState(t *testing.T) {
	f := newFixture(t)
	p := open(t, f.config(t, scope))
	vm := create(t, p, spec(1))
	for _, content := range []string{"", "{", `{"tags":null}`} {
		if err := os.WriteFile(filepath.Join(f.folder(vm), "state.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Create(t.Context(), spec(1)); err == nil || provider.Definite(err) {
			t.Errorf("create over a living process without tags: %v, want an error that is not definite", err)
		}
		if vms, err := p.List(t.Context()); err != nil || len(vms) != 0 {
			t.Errorf("list: %v, %v", vms, err)
		}
	}
}

// TestLeftoversDoNotComeBack: leftovers of an earlier, incomplete removal are not part of a new
// instance.
func TestLeftoversDoNotComeBack(t *testing.T) {
	f := newFixture(t)
	s := spec(1)
	dir := filepath.Join(f.dir, scope.Shard, string(s.ID))
	for _, name := range []string{"identity/identity.crt", "keys/old.key", "deleting", "pid"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	create(t, open(t, f.config(t, scope)), s)
	for _, name := range []string{"identity/identity.crt", "keys/old.key", "deleting"} {
		if _, err := os.Stat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}

var errNotLeader = errors.New("not the leader")

// ledUntil returns a context that permits that many mutations.
func ledUntil(t *testing.T, n int) context.Context {
	asked := 0
	return provider.WithGuard(t.Context(), func(context.Context) error {
		if asked++; asked > n {
			return errNotLeader
		}
		return nil
	})
}

// TestGuardBeforeCleaningUp ends leadership after a start that failed permanently: the folder may
// not be removed any more, so the error is not definite.
func TestGuardBeforeCleaningUp(t *testing.T) {
	f := newFixture(t)
	cfg := f.config(t, scope)
	cfg.Agent = filepath.Join(f.dir, "agent")
	if err := os.WriteFile(cfg.Agent, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	p := open(t, cfg)
	if err := os.Remove(cfg.Agent); err != nil {
		t.Fatal(err)
	}
	_, err := p.Create(ledUntil(t, 3), spec(1))
	if !errors.Is(err, errNotLeader) || provider.Definite(err) {
		t.Errorf("create answers %v, want the guard's refusal and no definite error", err)
	}
	if _, err := os.Stat(filepath.Join(f.dir, scope.Shard, string(spec(1).ID), "state.json")); err != nil {
		t.Errorf("the folder was cleared without leave: %v", err)
	}
	if _, err := p.Create(t.Context(), spec(1)); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("create asked again: %v", err)
	}
}

// TestGuardOfDelete: a refused delete, also one refused after its lock was taken, leaves no mark.
func TestGuardOfDelete(t *testing.T) {
	f := newFixture(t)
	p := open(t, f.config(t, scope))
	vm := create(t, p, spec(1))
	for _, n := range []int{0, 1} {
		if err := provider.DeleteOne(ledUntil(t, n), p, provider.Ref{ID: vm.ID}); !errors.Is(err, errNotLeader) {
			t.Errorf("delete answers %v", err)
		}
	}
	if got := state(t, p, provider.Ref{ID: vm.ID}); got != provider.StateRunning {
		t.Errorf("after a refused delete it is %s", got)
	}
}

// TestGuardBetween ends leadership after the folder was created: nothing is started, and the next
// create completes it.
func TestGuardBetween(t *testing.T) {
	f := newFixture(t)
	p := open(t, f.config(t, scope))
	ctx := ledUntil(t, 2)
	if _, err := p.Create(ctx, spec(1)); !errors.Is(err, errNotLeader) {
		t.Fatalf("create answers %v", err)
	}
	if got := state(t, p, provider.Ref{ID: spec(1).ID}); got != provider.StateFailed {
		t.Errorf("what was not allowed to start is %s", got)
	}
	create(t, p, spec(1))
}
