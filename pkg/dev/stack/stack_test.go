package stack_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nstance/nstance/pkg/dev/stack"
)

// TestKey: each stack has a key of its own, which stays the same and can only be read by its owner.
func TestKey(t *testing.T) {
	key := func(temp string) string {
		cfg := stack.Config{Temp: temp, Provider: "process", Out: io.Discard, Logger: slog.New(slog.DiscardHandler)}
		if _, err := stack.New(cfg); err != nil {
			t.Error(err)
		}
		file := filepath.Join(temp, "s3.key")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key's file: %v, %v", info, err)
		}
		return string(text)
	}
	one, other := t.TempDir(), t.TempDir()
	var mu sync.Mutex
	var all sync.WaitGroup
	keys := map[string]bool{}
	for range 8 {
		all.Go(func() {
			k := key(one)
			mu.Lock()
			defer mu.Unlock()
			keys[k] = true
		})
	}
	all.Wait()
	if len(keys) != 1 {
		t.Errorf("one stack has %d keys", len(keys))
	}
	for k := range keys {
		if len(k) < 20 || k == key(other) {
			t.Errorf("the key %q is short, or that of two stacks", k)
		}
	}
	if left, err := filepath.Glob(filepath.Join(one, ".key-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestTakenPort: a port that is in use is named with the program that has it, before anything is
// started.
func TestTakenPort(t *testing.T) {
	const offset = 11111
	addr := fmt.Sprintf("127.0.0.1:%d", 8989+offset)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	temp := t.TempDir()
	s, err := stack.New(stack.Config{
		Temp: temp, Provider: "process", PortOffset: offset, Out: io.Discard, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Run(t.Context())
	for _, want := range []string{addr + " is taken by ", fmt.Sprintf("(pid %d)", os.Getpid()), "DEV_PORT_OFFSET"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want it to contain %q", err, want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(temp, "run", "*")); err != nil || len(left) > 0 {
		t.Errorf("something was started: %v, %v", left, err)
	}
}

// TestPortOffset: an offset that would leave the range of ports is refused.
func TestPortOffset(t *testing.T) {
	for _, offset := range []string{"-1", "20001", "1000 ", "x"} {
		err := stack.Flags{Temp: t.TempDir(), Provider: "process", PortOffset: offset}.Run(t.Context(), io.Discard)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q is not valid: want a number from 0 to 20000", offset)) {
			t.Errorf("offset %q: %v", offset, err)
		}
	}
}
