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

// watched is a file with a Watcher in simulated time.
type watched struct {
	mu       sync.Mutex
	text     string
	err      error
	applied  []settings.File
	problems []string
}

func (f *watched) write(text string, err error) {
	f.mu.Lock()
	f.text, f.err = text, err
	f.mu.Unlock()
	time.Sleep(3 * time.Second) // simulated: one read of the file, and a margin
	synctest.Wait()
}

func (f *watched) want(t *testing.T, applied, problems int) {
	t.Helper()
	if len(f.applied) != applied || len(f.problems) != problems {
		t.Errorf("applied %d, problems %q: want %d and %d", len(f.applied), f.problems, applied, problems)
	}
}

func watch(t *testing.T, test func(*watched)) {
	synctest.Test(t, func(t *testing.T) {
		f := &watched{text: twoShards}
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

// TestWatchShards: shards are added, moved and removed while the operator runs.
func TestWatchShards(t *testing.T) {
	watch(t, func(f *watched) {
		f.write(twoShards, nil)
		f.want(t, 0, 0)
		f.write("# only a comment is new\n"+twoShards, nil)
		f.want(t, 0, 0)
		const third = "  x: {registration_addr: \"h:1\", operator_addr: \"h:2\"}\n"
		f.write(twoShards+third, nil)
		f.want(t, 1, 0)
		f.write(strings.Replace(twoShards, "10.0.0.1:8993", "10.0.0.9:8993", 1), nil)
		f.want(t, 2, 0)
		if have := f.applied[1].Operators()[1].Addrs; len(f.applied[1].Shards) != 2 || have[0] != "10.0.0.9:8993" {
			t.Errorf("applied %+v", f.applied[1])
		}
		f.write(twoShards, nil)
		f.want(t, 3, 0)
	})
}

// TestWatchKeepsRunningConfig: a problem is reported once, and the running config stays in use.
func TestWatchKeepsRunningConfig(t *testing.T) {
	watch(t, func(f *watched) {
		f.write("cluster_id: 5", nil)
		f.write("cluster_id: 5", nil)
		f.want(t, 0, 1)
		f.write(strings.Replace(twoShards, "example-cluster", "another", 1), nil)
		f.want(t, 0, 2)
		f.write(strings.Replace(twoShards, "blue", "red", 1), nil)
		f.want(t, 0, 3)
		f.write("", errors.New("gone"))
		f.write("", errors.New("gone"))
		f.want(t, 0, 4)
		f.write("", nil)
		f.want(t, 0, 5)
		for i, words := range [][]string{{"cluster_id: 5"}, {"cluster_id", `"another"`, "restart"}, {"tenant", `"red"`}, {"gone"}, {"the file"}} {
			for _, word := range words {
				if !strings.Contains(f.problems[i], word) {
					t.Errorf("problem %d: %s\nlacks %q", i, f.problems[i], word)
				}
			}
		}
		f.write(twoShards, nil) // the running config
		f.want(t, 0, 5)
		f.write(strings.Replace(twoShards, "10.0.0.1:8993", "10.0.0.9:8993", 1), nil)
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
