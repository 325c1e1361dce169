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

// TestALeaderFailsOver in the middle of a call: the moment the leader has begun to write
// down what it was asked for, it is killed, and the standby takes over. Each pod gets
// exactly one instance, and the pool its size.
func TestALeaderFailsOver(t *testing.T) {
	w := begin(t, nil, "--standby")
	w.config = strings.NewReplacer(
		`"127.0.0.1:8992"`, `"127.0.0.1:8992; 127.0.0.1:9012"`, `"127.0.0.1:8993"`, `"127.0.0.1:8993; 127.0.0.1:9013"`).Replace(w.config)
	w.operate()
	w.running("web", 4)
	w.settled("web", 4)

	const podsEach = 3
	size, pods := 4, 0
	for _, written := range []string{"request/dev-1", "groups/dev-1", "instance/dev-1"} {
		leads, other := w.leader()
		began := time.Now()
		killed := w.killWhen(leads, written)
		size += 2
		w.scale("web", size)
		for down, n := false, 0; !down || n < podsEach; n++ {
			w.pod(fmt.Sprintf("pod-%d", pods), nil)
			pods++
			if n < podsEach {
				continue
			}
			select { // the pods before may be the other shard's
			case <-killed:
				down = true
			case <-time.After(2 * time.Second):
			}
		}
		w.eventually("the standby leads", func(context.Context) error {
			if how := w.components()[other].Detail; how != "leading" {
				return fmt.Errorf("%s is %s", other, how)
			}
			return nil
		})
		led := time.Since(began)
		w.running("web", size)
		w.onDemand(pods)
		t.Logf("%s was killed writing %s: %s led after %.1f s, all was there after %.1f s",
			leads, written, other, led.Seconds(), time.Since(began).Seconds())
		w.dev("start", leads)
	}
	if sizes := w.sizes("web"); sizes != [2]int{size / 2, size / 2} {
		t.Errorf("the shards have %v", sizes)
	}
	for _, c := range []struct {
		onDemand bool
		want     int
	}{{true, pods}, {false, size}} {
		if made := w.count(func(i instance) bool { return i.OnDemand == c.onDemand }); made != c.want {
			t.Errorf("on demand %v: %d instances were made, want %d: %+v", c.onDemand, made, c.want, w.all(""))
		}
	}
	for n := range pods {
		w.deletePod(fmt.Sprintf("pod-%d", n))
	}
	w.onDemand(0)
	w.settled("web", size)
}

// component is a process of the stack.
type component struct {
	Name   string
	Detail string
}

// components are those of the stack, by name.
func (w *world) components() map[string]component {
	w.Helper()
	cmd := exec.Command(filepath.Join(w.bin, "dev"), "status", "--temp", w.temp)
	cmd.Env = append(os.Environ(), "DEV_OUTPUT=json")
	out, err := cmd.Output()
	if err != nil {
		w.Fatalf("dev status: %v", err)
	}
	var report struct{ Components []component }
	if err := json.Unmarshal(out, &report); err != nil {
		w.Fatalf("dev status: %v\n%s", err, out)
	}
	all := map[string]component{}
	for _, c := range report.Components {
		all[c.Name] = c
	}
	return all
}

// leader waits until one of the servers of dev-1 leads and the other one stands by.
func (w *world) leader() (leads, other string) {
	w.Helper()
	w.eventually("one leads and one stands by", func(context.Context) error {
		all := w.components()
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

// killWhen kills a server the moment a folder of the bucket is written to, and has it
// stay down. The channel is closed when it is.
func (w *world) killWhen(name, folder string) <-chan struct{} {
	w.Helper()
	before := w.newest(folder)
	down := make(chan struct{})
	go func() {
		defer close(down)
		for end := time.Now().Add(patience); !w.newest(folder).After(before); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				w.Errorf("nothing is written to %s", folder)
				break
			}
		}
		if err := stack.NewClient(w.temp).Stop(context.Background(), name, true); err != nil {
			w.Errorf("kill %s: %v", name, err)
		}
	}()
	return down
}

// newest is when something was last written to a folder of the bucket.
func (w *world) newest(folder string) (at time.Time) {
	dir := filepath.Join(w.temp, "dev-s3", folder)
	names, err := os.ReadDir(dir)
	if err != nil {
		return at // it is made with its first file
	}
	for _, n := range names {
		if info, err := os.Stat(filepath.Join(dir, n.Name())); err == nil && info.ModTime().After(at) {
			at = info.ModTime()
		}
	}
	return at
}
