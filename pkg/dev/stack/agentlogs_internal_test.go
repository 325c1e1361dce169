package stack

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lockedBuffer is a buffer for two goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestFollowFile: lines appear when they are whole, each with the agent's name, until the file goes.
func TestFollowFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.log")
	add := func(text string) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		done := make(chan error, 1)
		go func() { done <- followFile(t.Context(), path, &lineWriter{name: "knd1", out: &out}) }()
		for _, step := range []struct{ add, want string }{
			{"", ""},
			{"one\ntw", "knd1 | one\n"},
			{"o\nthree\n", "knd1 | one\nknd1 | two\nknd1 | three\n"},
		} {
			if step.add != "" {
				add(step.add)
			}
			time.Sleep(2 * logPause)
			synctest.Wait()
			if got := out.String(); got != step.want {
				t.Errorf("after %q it shows %q, want %q", step.add, got, step.want)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
