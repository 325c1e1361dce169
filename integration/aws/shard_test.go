//go:build integration

package aws

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
)

// TestShard tells the life of a shard with one server after the other.
func TestShard(t *testing.T) {
	w := begin(t, "")
	w.start("a")
	w.within(time.Minute, "server a has the leader's address", func() error { return w.heldBy("a") })
	w.admin("cluster", "register-operator", "--output-dir", w.dir+"/admin")
	for _, story := range []struct {
		name string
		tell func(*world)
	}{
		{"Scale", scale},
		{"Targets", targets},
		{"SpotNotice", spotNotice},
		{"LostReplies", lostReplies},
		{"NoCapacity", noCapacity},
		{"Throttled", throttled},
		{"Killed", killed},
	} {
		if !t.Run(story.name, func(t *testing.T) {
			mine := *w
			mine.t = t
			story.tell(&mine)
		}) {
			return
		}
	}
}

// TestFailoverByInterface and TestFailoverByAddress: the leader is killed, and its
// address goes to the standby, with all agents.
func TestFailoverByInterface(t *testing.T) { failover(begin(t, "")) }

func TestFailoverByAddress(t *testing.T) { failover(begin(t, "primary")) }

func (w *world) heldBy(name string) error {
	if holder := w.holder(); holder != name {
		return fmt.Errorf("it is with %q", holder)
	}
	return nil
}

func failover(w *world) {
	w.start("a")
	w.within(time.Minute, "server a has the leader's address", func() error { return w.heldBy("a") })
	w.admin("cluster", "register-operator", "--output-dir", w.dir+"/admin")
	before := ids(w.connected("web", 2, time.Minute))
	w.start("b")
	for _, step := range []struct{ leader, next string }{{"a", "b"}, {"b", "a"}} {
		if step.next == "a" {
			w.start("a")
		}
		w.kill(step.leader, syscall.SIGKILL)
		took := w.within(time.Minute, "server "+step.next+" has the leader's address", func() error { return w.heldBy(step.next) })
		w.t.Logf("the address is with %s after %s", step.next, took.Round(100*time.Millisecond))
		if after := ids(w.connected("web", 2, time.Minute)); !slices.Equal(before, after) {
			w.t.Errorf("instances are %v, want those that there were: %v", after, before)
		}
	}
	if n := len(w.cloud.Calls("RunInstances")); n != 2 {
		w.t.Errorf("%d launches, want 2", n)
	}
}

func ids(of []instance) (out []string) {
	for _, i := range of {
		out = append(out, i.ID)
	}
	slices.Sort(out)
	return out
}

// alive are the cloud's machines that the shard made, and that have not begun to end.
func (w *world) alive() (n int) {
	for _, m := range w.cloud.Machines() {
		if m.Tags["nstance:instance-id"] != "" && (m.State == "pending" || m.State == "running") {
			n++
		}
	}
	return n
}

func scale(w *world) {
	w.connected("web", 2, time.Minute)
	for _, size := range []int{5, 1, 3} {
		w.admin("group", "scale", "web", fmt.Sprint(size), "--shard", shard)
		w.connected("web", size, time.Minute)
		if n := w.alive(); n != size {
			w.t.Errorf("%d machines live, want %d", n, size)
		}
	}
	for _, m := range w.cloud.Machines() {
		if m.Tags["nstance:instance-id"] != "" && m.Params["MetadataOptions.HttpTokens"] != "required" {
			w.t.Errorf("machine %s has a metadata service without sessions", m.ID)
		}
	}
}

func targets(w *world) {
	w.within(time.Minute, "all instances of web are targets, and nothing else", func() error {
		var want []string
		all, err := w.instances()
		if err != nil {
			return err
		}
		for _, i := range all {
			if i.Group == "web" {
				want = append(want, i.Provider)
			}
		}
		got, err := w.registered()
		slices.Sort(want)
		slices.Sort(got)
		if err == nil && !slices.Equal(want, got) {
			err = fmt.Errorf("targets are %v, instances %v", got, want)
		}
		return err
	})
}

func spotNotice(w *world) {
	w.admin("group", "scale", "spot", "1", "--shard", shard)
	old := w.connected("spot", 1, time.Minute)[0]
	must(w.t, w.cloud.Interrupt(old.Provider, time.Minute))
	took := w.within(time.Minute, "another one is asked for while the old one lives", func() error {
		all, err := w.instances()
		if err != nil {
			return err
		}
		for _, i := range all {
			if i.Group == "spot" && i.ID != old.ID {
				return nil
			}
		}
		return errors.New("there is none")
	})
	w.t.Logf("replaced %s after the notice", took.Round(100*time.Millisecond))
	if fresh := w.connected("spot", 1, time.Minute)[0]; fresh.ID == old.ID {
		w.t.Errorf("%s is still there", old.ID)
	}
	w.admin("group", "scale", "spot", "0", "--yes", "--shard", shard)
	w.connected("spot", 0, time.Minute)
}

// lostReplies: what a launch did is not known, and the same one is asked for again.
func lostReplies(w *world) {
	w.cloud.FailNext("RunInstances", 2, awsfake.Fault{Lost: true})
	w.cloud.FailNext("TerminateInstances", 1, awsfake.Fault{Lost: true})
	w.admin("group", "scale", "web", "5", "--shard", shard)
	w.connected("web", 5, 2*time.Minute)
	for _, c := range w.cloud.Calls("RunInstances") {
		if c.Code != "" {
			w.t.Errorf("a create that was repeated was refused: %s", c.Code)
		}
	}
	made := map[string]string{} // all machines that ever were, of which the ended ones are shown for an hour
	for _, m := range w.cloud.Machines() {
		if id := m.Tags["nstance:instance-id"]; id != "" && made[id] != "" {
			w.t.Errorf("instance %s is machine %s, and %s as well", id, made[id], m.ID)
		} else if id != "" {
			made[id] = m.ID
		}
	}
	w.admin("group", "scale", "web", "3", "--shard", shard)
	w.connected("web", 3, time.Minute)
	w.within(time.Minute, "no machine is there twice", func() error {
		if n := w.alive(); n != 3 {
			return fmt.Errorf("%d live", n)
		}
		return nil
	})
}

// noCapacity: an answer of 500 that the SDK would repeat.
func noCapacity(w *world) {
	before := len(w.cloud.Calls("RunInstances"))
	w.cloud.FailNext("RunInstances", 3, awsfake.Fault{
		Code: "InsufficientInstanceCapacity", Status: http.StatusInternalServerError, Message: "We currently do not have sufficient capacity.",
	})
	w.admin("group", "scale", "web", "4", "--shard", shard)
	w.connected("web", 4, 2*time.Minute)
	tokens := map[string]bool{}
	calls := w.cloud.Calls("RunInstances")[before:]
	for _, c := range calls {
		tokens[c.Token] = true
	}
	// The SDK would have repeated a call with its token, within the second.
	if len(calls) != 4 || len(tokens) != 4 {
		w.t.Errorf("%d launches of %d instances, want 4 of 4: three refused and one made", len(calls), len(tokens))
	}
}

// throttled: others of the account use up the region's launches.
func throttled(w *world) {
	w.cloud.Throttle(
		awsfake.Throttle{Actions: []string{"RunInstances"}, PerSecond: 0.5, Burst: 1},
		awsfake.Throttle{Actions: []string{"DescribeInstances"}, PerSecond: 5, Burst: 5},
	)
	w.admin("group", "scale", "web", "8", "--shard", shard)
	w.connected("web", 8, 2*time.Minute)
	refused := 0
	for _, c := range w.cloud.Calls("RunInstances") {
		if c.Code == "RequestLimitExceeded" {
			refused++
		}
	}
	w.t.Logf("%d launches were refused", refused)
	if refused == 0 {
		w.t.Error("none was refused: the region was not throttled")
	}
	w.cloud.Throttle()
	w.admin("group", "scale", "web", "2", "--shard", shard)
	w.connected("web", 2, time.Minute)
	if n := w.alive(); n != 2 {
		w.t.Errorf("%d machines live, want 2", n)
	}
}

// killed: a machine ends at the cloud, and its reason is told.
func killed(w *world) {
	old := w.connected("web", 2, time.Minute)[0]
	const why = "Server.SpotInstanceTermination: Instance was taken"
	must(w.t, w.cloud.Kill(old.Provider, "Server.SpotInstanceTermination", why))
	w.within(time.Minute, "it is replaced", func() error {
		all, err := w.instances()
		if err != nil {
			return err
		}
		for _, i := range all {
			if i.ID == old.ID {
				return fmt.Errorf("%+v", i)
			}
		}
		return nil
	})
	w.connected("web", 2, time.Minute)
	w.within(time.Minute, "why it ended is told", func() error {
		all, err := w.instances("--deleted")
		if err != nil {
			return err
		}
		for _, i := range all {
			if i.ID == old.ID && strings.Contains(i.Reason, why) {
				return nil
			}
			if i.ID == old.ID {
				return fmt.Errorf("its reason is %q", i.Reason)
			}
		}
		return errors.New("it is forgotten")
	})
}
