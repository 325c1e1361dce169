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

	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// TestShard runs through the life of a shard, with one server after the other.
func TestShard(t *testing.T) {
	f := newFixture(t, "")
	f.start("a")
	f.within(patience, "server a has the leader's address", func() error { return f.heldBy("a") })
	f.admin("cluster", "register-operator", "--output-dir", f.dir+"/admin")
	for _, story := range []struct {
		name string
		tell func(*fixture)
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
			mine := *f
			mine.t = t
			story.tell(&mine)
		}) {
			return
		}
	}
}

// TestFailoverByInterface and TestFailoverByAddress: the leader is killed, and its address moves to
// the standby, with all agents.
func TestFailoverByInterface(t *testing.T) { failover(newFixture(t, "")) }

func TestFailoverByAddress(t *testing.T) { failover(newFixture(t, "primary")) }

func (f *fixture) heldBy(name string) error {
	if holder := f.holder(); holder != name {
		return fmt.Errorf("it is with %q", holder)
	}
	return nil
}

func failover(f *fixture) {
	f.start("a")
	f.within(patience, "server a has the leader's address", func() error { return f.heldBy("a") })
	f.admin("cluster", "register-operator", "--output-dir", f.dir+"/admin")
	before := ids(f.connected("web", 2, patience))
	f.start("b")
	for _, step := range []struct{ leader, next string }{{"a", "b"}, {"b", "a"}} {
		if step.next == "a" {
			f.start("a")
		}
		f.kill(step.leader, syscall.SIGKILL)
		took := f.within(patience, "server "+step.next+" has the leader's address", func() error { return f.heldBy(step.next) })
		f.t.Logf("the address is with %s after %s", step.next, took.Round(100*time.Millisecond))
		if after := ids(f.connected("web", 2, patience)); !slices.Equal(before, after) {
			f.t.Errorf("instances are %v, want those that there were: %v", after, before)
		}
	}
	launches := map[string]bool{} // a launch whose reply is late may be repeated, with its token
	for _, c := range f.cloud.Calls("RunInstances") {
		launches[c.Token] = true
	}
	if len(launches) != 2 {
		f.t.Errorf("%d launches, want 2", len(launches))
	}
}

func ids(of []instance) (out []string) {
	for _, i := range of {
		out = append(out, i.ID)
	}
	slices.Sort(out)
	return out
}

// alive returns the machines that the shard created and whose termination has not begun.
func (f *fixture) alive() (n int) {
	for _, m := range f.cloud.Machines() {
		if m.Tags["nstance:instance-id"] != "" && (m.State == "pending" || m.State == "running") {
			n++
		}
	}
	return n
}

func scale(f *fixture) {
	f.connected("web", 2, patience)
	for _, size := range []int{5, 1, 3} {
		f.admin("group", "scale", "web", fmt.Sprint(size), "--shard", shard)
		f.connected("web", size, patience)
		if n := f.alive(); n != size {
			f.t.Errorf("%d machines live, want %d", n, size)
		}
	}
	for _, m := range f.cloud.Machines() {
		if m.Tags["nstance:instance-id"] != "" && m.Params["MetadataOptions.HttpTokens"] != "required" {
			f.t.Errorf("machine %s has a metadata service without sessions", m.ID)
		}
	}
}

func targets(f *fixture) {
	f.within(patience, "all instances of web are targets, and nothing else", func() error {
		var want []string
		all, err := f.instances()
		if err != nil {
			return err
		}
		for _, i := range all {
			if i.Group == "web" {
				want = append(want, i.Provider)
			}
		}
		got, err := f.registered()
		slices.Sort(want)
		slices.Sort(got)
		if err == nil && !slices.Equal(want, got) {
			err = fmt.Errorf("targets are %v, instances %v", got, want)
		}
		return err
	})
}

func spotNotice(f *fixture) {
	f.admin("group", "scale", "spot", "1", "--shard", shard)
	old := f.connected("spot", 1, patience)[0]
	must(f.t, f.cloud.Interrupt(old.Provider, time.Minute))
	took := f.within(patience, "another one is asked for while the old one lives", func() error {
		all, err := f.instances()
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
	f.t.Logf("replaced %s after the notice", took.Round(100*time.Millisecond))
	if fresh := f.connected("spot", 1, patience)[0]; fresh.ID == old.ID {
		f.t.Errorf("%s is still there", old.ID)
	}
	f.admin("group", "scale", "spot", "0", "--yes", "--shard", shard)
	f.connected("spot", 0, patience)
}

// lostReplies: the outcome of a launch is unknown, and the same launch is repeated.
func lostReplies(f *fixture) {
	f.cloud.FailNext("RunInstances", 2, awstest.Fault{Lost: true})
	f.cloud.FailNext("TerminateInstances", 1, awstest.Fault{Lost: true})
	f.admin("group", "scale", "web", "5", "--shard", shard)
	f.connected("web", 5, patience)
	for _, c := range f.cloud.Calls("RunInstances") {
		if c.Code != "" {
			f.t.Errorf("a create that was repeated was refused: %s", c.Code)
		}
	}
	made := map[string]string{} // all machines ever created; terminated ones are listed for an hour
	for _, m := range f.cloud.Machines() {
		if id := m.Tags["nstance:instance-id"]; id != "" && made[id] != "" {
			f.t.Errorf("instance %s is machine %s, and %s as well", id, made[id], m.ID)
		} else if id != "" {
			made[id] = m.ID
		}
	}
	f.admin("group", "scale", "web", "3", "--shard", shard)
	f.connected("web", 3, patience)
	f.within(patience, "no machine is there twice", func() error {
		if n := f.alive(); n != 3 {
			return fmt.Errorf("%d live", n)
		}
		return nil
	})
}

// noCapacity: a reply of 500 that the SDK would retry.
func noCapacity(f *fixture) {
	before := len(f.cloud.Calls("RunInstances"))
	f.cloud.FailNext("RunInstances", 3, awstest.Fault{
		Code: "InsufficientInstanceCapacity", Status: http.StatusInternalServerError, Message: "We currently do not have sufficient capacity.",
	})
	f.admin("group", "scale", "web", "4", "--shard", shard)
	f.connected("web", 4, patience)
	tokens := map[string]bool{}
	calls := f.cloud.Calls("RunInstances")[before:]
	for _, c := range calls {
		tokens[c.Token] = true
	}
	// The SDK would have retried with the same token, within the second.
	if len(calls) != 4 || len(tokens) != 4 {
		f.t.Errorf("%d launches of %d instances, want 4 of 4: three refused and one made", len(calls), len(tokens))
	}
}

// throttled: other users of the account exhaust the region's launch rate.
func throttled(f *fixture) {
	f.cloud.Throttle(
		awstest.Throttle{Actions: []string{"RunInstances"}, PerSecond: 0.5, Burst: 1},
		awstest.Throttle{Actions: []string{"DescribeInstances"}, PerSecond: 5, Burst: 5},
	)
	f.admin("group", "scale", "web", "8", "--shard", shard)
	f.connected("web", 8, patience)
	refused := 0
	for _, c := range f.cloud.Calls("RunInstances") {
		if c.Code == "RequestLimitExceeded" {
			refused++
		}
	}
	f.t.Logf("%d launches were refused", refused)
	if refused == 0 {
		f.t.Error("none was refused: the region was not throttled")
	}
	f.cloud.Throttle()
	f.admin("group", "scale", "web", "2", "--shard", shard)
	f.connected("web", 2, patience)
	if n := f.alive(); n != 2 {
		f.t.Errorf("%d machines live, want 2", n)
	}
}

// killed: a machine is terminated by the cloud, and the reason is reported.
func killed(f *fixture) {
	old := f.connected("web", 2, patience)[0]
	const why = "Server.SpotInstanceTermination: Instance was taken"
	must(f.t, f.cloud.Kill(old.Provider, "Server.SpotInstanceTermination", why))
	f.within(patience, "it is replaced", func() error {
		all, err := f.instances()
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
	f.connected("web", 2, patience)
	f.within(patience, "why it ended is told", func() error {
		all, err := f.instances("--deleted")
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
