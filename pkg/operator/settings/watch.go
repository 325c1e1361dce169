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
	// Every is how often the file is read. Its text is compared, and nothing that a file
	// system tells: a mounted ConfigMap is swapped by a symbolic link.
	Every time.Duration
	// Apply gets each new configuration that is valid and not the one that runs. Problem
	// gets, once for each text, why one is not taken; what runs goes on then. Both are
	// called from Run alone.
	Apply   func(File)
	Problem func(error)
}

// Run watches until ctx ends. running is the configuration that is in force at first.
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
				w.Problem(fmt.Errorf("read the configuration file again: %w: the operator goes on with what it has", err))
			}
			failure = err.Error()
			continue
		}
		if failure = ""; seen != nil && bytes.Equal(seen, text) {
			continue
		}
		seen = append([]byte{}, text...) // an empty text is one that was seen, too
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

// Succeed is the configuration that follows a running one. Which cluster and tenant
// an operator is for can't change while it runs.
func Succeed(running File, text []byte) (File, error) {
	next, err := ParseFile(text)
	if err != nil {
		return running, fmt.Errorf("it is not valid, and the operator goes on with what it has:\n%w", err)
	}
	for _, id := range []struct{ field, is, was string }{
		{"cluster_id", next.Cluster, running.Cluster}, {"tenant", next.Tenant, running.Tenant},
	} {
		if id.is != id.was {
			return running, fmt.Errorf("%s: %q is not valid while the operator runs for %q, and it goes on with what it has: "+
				"restart it to change this", id.field, id.is, id.was)
		}
	}
	return next, nil
}
