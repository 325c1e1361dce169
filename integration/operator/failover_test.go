//go:build integration

package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/dev/stack"
)

// TestALeaderFailsOver during a call: at the moment when the leader begins to write the requested
// change it is killed, and the standby takes over. Each pod gets exactly one instance, and the pool
// its size.
func TestALeaderFailsOver(t *testing.T) {
	f := newFixture(t, nil, "--standby")
	f.config = strings.NewReplacer(
		`"127.0.0.1:8992"`, `"127.0.0.1:8992; 127.0.0.1:9012"`, `"127.0.0.1:8993"`, `"127.0.0.1:8993; 127.0.0.1:9013"`).Replace(f.config)
	f.operate()
	f.running("web", 4)
	f.settled("web", 4)

	const podsEach = 3
	size, pods := 4, 0
	for _, written := range []string{"request/dev-1", "groups/dev-1", "instance/dev-1"} {
		leads, other := f.leader()
		began := time.Now()
		killed := f.killWhen(leads, written)
		size += 2
		f.scale("web", size)
		for down, n := false, 0; !down || n < podsEach; n++ {
			f.pod(fmt.Sprintf("pod-%d", pods), nil)
			pods++
			if n < podsEach {
				continue
			}
			select { // earlier pods may be on the other shard
			case <-killed:
				down = true
			case <-time.After(2 * time.Second):
			}
		}
		f.eventually("the standby leads", func(context.Context) error {
			if how := f.components()[other].Detail; how != "leading" {
				return fmt.Errorf("%s is %s", other, how)
			}
			return nil
		})
		led := time.Since(began)
		f.running("web", size)
		f.onDemand(pods)
		t.Logf("%s was killed writing %s: %s led after %.1f s, all was there after %.1f s",
			leads, written, other, led.Seconds(), time.Since(began).Seconds())
		f.dev("start", leads)
	}
	if sizes := f.sizes("web"); sizes != [2]int{size / 2, size / 2} {
		t.Errorf("the shards have %v", sizes)
	}
	for _, c := range []struct {
		onDemand bool
		want     int
	}{{true, pods}, {false, size}} {
		if made := f.count(func(i instance) bool { return i.OnDemand == c.onDemand }); made != c.want {
			t.Errorf("on demand %v: %d instances were made, want %d: %+v", c.onDemand, made, c.want, f.all(""))
		}
	}
	for n := range pods {
		f.deletePod(fmt.Sprintf("pod-%d", n))
	}
	f.onDemand(0)
	f.settled("web", size)
}

// component is a process of the stack.
type component struct {
	Name   string
	Detail string
}

// components returns those of the stack, by name.
func (f *fixture) components() map[string]component {
	f.Helper()
	cmd := exec.Command(filepath.Join(f.bin, "dev"), "status", "--temp", f.temp)
	cmd.Env = append(os.Environ(), "DEV_OUTPUT=json")
	out, err := cmd.Output()
	if err != nil {
		f.Fatalf("dev status: %v", err)
	}
	var report struct{ Components []component }
	if err := json.Unmarshal(out, &report); err != nil {
		f.Fatalf("dev status: %v\n%s", err, out)
	}
	all := map[string]component{}
	for _, c := range report.Components {
		all[c.Name] = c
	}
	return all
}

// leader waits until one of the servers of dev-1 leads and the other is its standby.
func (f *fixture) leader() (leads, other string) {
	f.Helper()
	f.eventually("one leads and one stands by", func(context.Context) error {
		all := f.components()
		for _, pair := range [][2]string{{dev1, "standby"}, {"standby", dev1}} {
			if all[pair[0]].Detail == "leading" && all[pair[1]].Detail == "standing by" {
				leads, other = pair[0], pair[1]
				return nil
			}
		}
		return fmt.Errorf("%+v", all)
	})
	return leads, other
}

// killWhen kills a server at the moment of a write to a folder of the bucket, and keeps it stopped.
// The channel is closed after that.
func (f *fixture) killWhen(name, folder string) <-chan struct{} {
	f.Helper()
	before := f.newest(folder)
	down := make(chan struct{})
	go func() {
		defer close(down)
		for end := time.Now().Add(patience); !f.newest(folder).After(before); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				f.Errorf("nothing is written to %s", folder)
				break
			}
		}
		if err := stack.NewClient(f.temp).Stop(context.Background(), name, true); err != nil {
			f.Errorf("kill %s: %v", name, err)
		}
	}()
	return down
}

// newest returns the time of the last write to a folder of the bucket.
func (f *fixture) newest(folder string) (at time.Time) {
	dir := filepath.Join(f.temp, "dev-s3", folder)
	names, err := os.ReadDir(dir)
	if err != nil {
		return at // the folder is created with its first file
	}
	for _, n := range names {
		if info, err := os.Stat(filepath.Join(dir, n.Name())); err == nil && info.ModTime().After(at) {
			at = info.ModTime()
		}
	}
	return at
}
