package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// What a command waits for is printed after a second, and then every few seconds.
const (
	firstAfter = time.Second
	thenEvery  = 5 * time.Second
)

// waits says which shards are waited for, and why.
type waits struct {
	mu     sync.Mutex
	w      io.Writer
	shards map[string]*wait
}

type wait struct {
	last  error
	timer *time.Timer
}

func newWaits(w io.Writer) *waits { return &waits{w: w, shards: map[string]*wait{}} }

// set keeps why a shard is waited for; nil: it is not any more.
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
	if w.shards[shard] == x {
		fmt.Fprintf(w.w, "waiting: %v\n", x.last)
		x.timer.Reset(thenEvery)
	}
}
