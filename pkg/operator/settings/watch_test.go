package settings_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/operator/settings"
)

// followed is a file that a Watcher follows in simulated time.
type followed struct {
	mu       sync.Mutex
	text     string
	err      error
	applied  []settings.File
	problems []string
}

func (f *followed) put(text string, err error) {
	f.mu.Lock()
	f.text, f.err = text, err
	f.mu.Unlock()
	time.Sleep(3 * time.Second) // of the bubble's: one look at the file, and a bit
	synctest.Wait()
}

func (f *followed) want(t *testing.T, applied, problems int) {
	t.Helper()
	if len(f.applied) != applied || len(f.problems) != problems {
		t.Errorf("applied %d, problems %q: want %d and %d", len(f.applied), f.problems, applied, problems)
	}
}

func follow(t *testing.T, test func(*followed)) {
	synctest.Test(t, func(t *testing.T) {
		f := &followed{text: twoShards}
		running, err := settings.ParseFile([]byte(f.text))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			settings.Watcher{
				Path: "config.yaml", Every: 2 * time.Second,
				Read: func(string) ([]byte, error) {
					f.mu.Lock()
					defer f.mu.Unlock()
					return []byte(f.text), f.err
				},
				Apply:   func(file settings.File) { f.applied = append(f.applied, file) },
				Problem: func(err error) { f.problems = append(f.problems, err.Error()) },
			}.Run(ctx, running)
		})
		test(f)
		stop()
		done.Wait()
	})
}

// TestWatchShards: a shard comes, moves and goes while the operator runs.
func TestWatchShards(t *testing.T) {
	follow(t, func(f *followed) {
		f.put(twoShards, nil)
		f.want(t, 0, 0)
		f.put("# nothing but a comment is new\n"+twoShards, nil)
		f.want(t, 0, 0)
		const third = "  x: {registration_addr: \"h:1\", operator_addr: \"h:2\"}\n"
		f.put(twoShards+third, nil)
		f.want(t, 1, 0)
		f.put(strings.Replace(twoShards, "10.0.0.1:8993", "10.0.0.9:8993", 1), nil)
		f.want(t, 2, 0)
		if have := f.applied[1].Operators()[1].Addrs; len(f.applied[1].Shards) != 2 || have[0] != "10.0.0.9:8993" {
			t.Errorf("applied %+v", f.applied[1])
		}
		f.put(twoShards, nil)
		f.want(t, 3, 0)
	})
}

// TestWatchKeeps: what can't be taken is told once, and what runs goes on.
func TestWatchKeeps(t *testing.T) {
	follow(t, func(f *followed) {
		f.put("cluster_id: 5", nil)
		f.put("cluster_id: 5", nil)
		f.want(t, 0, 1)
		f.put(strings.Replace(twoShards, "example-cluster", "another", 1), nil)
		f.want(t, 0, 2)
		f.put(strings.Replace(twoShards, "blue", "red", 1), nil)
		f.want(t, 0, 3)
		f.put("", errors.New("gone"))
		f.put("", errors.New("gone"))
		f.want(t, 0, 4)
		f.put("", nil)
		f.want(t, 0, 5)
		for i, words := range [][]string{{"cluster_id: 5"}, {"cluster_id", `"another"`, "restart"}, {"tenant", `"red"`}, {"gone"}, {"the file"}} {
			for _, word := range words {
				if !strings.Contains(f.problems[i], word) {
					t.Errorf("problem %d: %s\nlacks %q", i, f.problems[i], word)
				}
			}
		}
		f.put(twoShards, nil) // what ran all the time
		f.want(t, 0, 5)
		f.put(strings.Replace(twoShards, "10.0.0.1:8993", "10.0.0.9:8993", 1), nil)
		f.want(t, 1, 5)
	})
}

func TestSucceed(t *testing.T) {
	running, err := settings.ParseFile([]byte(twoShards))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := settings.Succeed(running, []byte("x"))
	if err == nil || !reflect.DeepEqual(kept, running) {
		t.Errorf("%+v, %v", kept, err)
	}
}
