package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// A wait is printed after firstAfter; every thenEvery, its reason is printed again if it has changed.
const (
	firstAfter = time.Second
	thenEvery  = 5 * time.Second
)

// waits prints which shards a command waits for, and why.
type waits struct {
	mu     sync.Mutex
	w      io.Writer
	shards map[string]*wait
}

type wait struct {
	last    error
	printed string
	timer   *time.Timer
}

func newWaits(w io.Writer) *waits { return &waits{w: w, shards: map[string]*wait{}} }

// set records why a shard is waited for; nil ends the wait.
func (w *waits) set(shard string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.shards[shard]
	switch {
	case err == nil && x == nil:
	case err == nil:
		x.timer.Stop()
		delete(w.shards, shard)
	case x == nil:
		x = &wait{last: err}
		x.timer = time.AfterFunc(firstAfter, func() { w.print(shard, x) })
		w.shards[shard] = x
	default:
		x.last = err
	}
}

func (w *waits) print(shard string, x *wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shards[shard] != x {
		return
	}
	if text := oneLine(x.last.Error()); text != x.printed {
		fmt.Fprintf(w.w, "waiting: %s\n", text)
		x.printed = text
	}
	x.timer.Reset(thenEvery)
}
