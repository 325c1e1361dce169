package settings

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"time"
)

// Watcher follows a configuration file.
type Watcher struct {
	Path string
	Read func(path string) ([]byte, error)
	// Every is the polling interval. The text is compared, not file metadata: a mounted
	// ConfigMap is swapped by a symbolic link.
	Every time.Duration
	// Apply gets each new valid configuration that differs from the running one. Problem gets,
	// once for each text, why it is rejected; the running one stays. Both are called only from
	// Run.
	Apply   func(File)
	Problem func(error)
}

// Run watches until ctx ends. running is the initial configuration.
func (w Watcher) Run(ctx context.Context, running File) {
	var seen []byte
	var failure string
	ticks := time.NewTicker(w.Every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		text, err := w.Read(w.Path)
		if err != nil {
			if failure != err.Error() {
				w.Problem(fmt.Errorf("reload the configuration file: %w; still using the previous one", err))
			}
			failure = err.Error()
			continue
		}
		if failure = ""; seen != nil && bytes.Equal(seen, text) {
			continue
		}
		seen = append([]byte{}, text...) // non-nil: an empty text counts as seen
		next, err := Succeed(running, text)
		switch {
		case err != nil:
			w.Problem(fmt.Errorf("configuration file %s: %w", w.Path, err))
		case !reflect.DeepEqual(next, running):
			running = next
			w.Apply(next)
		}
	}
}

// Succeed returns the configuration that follows running. Cluster and tenant can't change
// while the operator runs.
func Succeed(running File, text []byte) (File, error) {
	next, err := ParseFile(text)
	if err != nil {
		return running, fmt.Errorf("it is invalid; still using the previous one:\n%w", err)
	}
	for _, id := range []struct{ field, is, was string }{
		{"cluster_id", next.Cluster, running.Cluster}, {"tenant", next.Tenant, running.Tenant},
	} {
		if id.is != id.was {
			return running, fmt.Errorf("%s can't change from %q to %q while the operator runs; still using the previous configuration: "+
				"restart it to change this", id.field, id.was, id.is)
		}
	}
	return next, nil
}
