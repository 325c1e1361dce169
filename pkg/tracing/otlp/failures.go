package otlp

import (
	"log/slog"
	"sync"
	"time"
)

// failures logs why spans can't be exported, not more often than reportEvery. Safe for concurrent
// use.
type failures struct {
	log *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	last time.Time
	more int // since the last line
}

// add records a failure.
func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if !f.last.IsZero() && now.Sub(f.last) < reportEvery {
		f.more++
		return
	}
	f.log.Warn("can't export traces", slog.Any("error", err), slog.Int("more_failures", f.more))
	f.last, f.more = now, 0
}
