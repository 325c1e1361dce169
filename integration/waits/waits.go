// Package waits tells what a story waited for, and shortens the periods of the product that it waits for.
package waits

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// shortest is the shortest time that is told.
const shortest = time.Second

// Waits are the waits of one story. It can be used concurrently.
type Waits struct {
	mu    sync.Mutex
	total map[string]time.Duration
}

// Of returns the waits of a test, which logs them at its end: those of a second or more, longest
// first. Waits for the same are added up. One wait may be part of another.
func Of(tb testing.TB) *Waits {
	tb.Helper()
	w := &Waits{total: map[string]time.Duration{}}
	began := time.Now()
	tb.Cleanup(func() {
		if lines := w.lines(); len(lines) > 0 {
			tb.Logf("waited, in %.1f s, for:\n%s", time.Since(began).Seconds(), strings.Join(lines, "\n"))
		}
	})
	return w
}

// For begins a wait for something, which ends when the returned function is called.
func (w *Waits) For(what string) (end func()) {
	began := time.Now()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.total[what] += time.Since(began)
	}
}

func (w *Waits) lines() (lines []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	longestFirst := func(a, b string) int { return cmp.Or(cmp.Compare(w.total[b], w.total[a]), cmp.Compare(a, b)) }
	for _, what := range slices.SortedFunc(maps.Keys(w.total), longestFirst) {
		if took := w.total[what]; took >= shortest {
			lines = append(lines, fmt.Sprintf("%6.1f s  %s", took.Seconds(), what))
		}
	}
	return lines
}
