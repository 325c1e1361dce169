package waits_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/integration/waits"
	"github.com/nstance/nstance/pkg/config"
)

// ended is a test that ends when end is called.
type ended struct {
	testing.TB
	cleanup func()
	said    string
}

func (e *ended) Cleanup(f func())                { e.cleanup = f }
func (e *ended) Logf(format string, args ...any) { e.said = fmt.Sprintf(format, args...) }

func TestLongestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		story := &ended{TB: t}
		w := waits.Of(story)
		for _, wait := range []struct {
			what string
			took time.Duration
		}{
			{"a machine", 2 * time.Second},
			{"a leader", 5 * time.Second},
			{"a machine", 4 * time.Second},
			{"a short command", 999 * time.Millisecond},
		} {
			end := w.For(wait.what)
			time.Sleep(wait.took)
			end()
		}
		story.cleanup()
		const want = "waited, in 12.0 s, for:\n   6.0 s  a machine\n   5.0 s  a leader"
		if story.said != want {
			t.Errorf("said\n%s\nwant\n%s", story.said, want)
		}
	})
}

func TestNothingToTell(t *testing.T) {
	story := &ended{TB: t}
	waits.Of(story)
	story.cleanup()
	if story.said != "" {
		t.Errorf("said %q", story.said)
	}
}

func TestShorten(t *testing.T) {
	for _, name := range []string{"dev-1", "dev-2"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "examples", "dev", name+".jsonc"))
		if err != nil {
			t.Fatal(err)
		}
		shard, err := config.Parse([]byte(waits.Shorten(t, string(text))))
		if err != nil {
			t.Fatal(err)
		}
		sweep, lease := shard.Server.GarbageCollection.Interval, shard.Server.LeaderElection.LeaseDuration
		if time.Duration(sweep) != waits.Sweep || time.Duration(lease) != waits.Lease {
			t.Errorf("%s: sweeps every %s, leases of %s", name, sweep, lease)
		}
	}
}
