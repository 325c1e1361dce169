package server_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// troubled returns an error unless a condition of group web has the text.
func (p *process) troubled(text string) error {
	g, err := p.group("web")
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(g.GetConditions(), func(c *nstancev1.Condition) bool { return strings.Contains(c.GetMessage(), text) }) {
		return fmt.Errorf("no condition says %q: %v", text, g.GetConditions())
	}
	return nil
}

// TestShardTrouble: a problem of the whole shard is logged, and shown with its groups.
func TestShardTrouble(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.world.Outage(errors.New("the cloud is on holiday"))
		p := s.start().awaitLeading()
		p.await("problem")
		if text := p.log.attr("problem", "problem"); !strings.Contains(text, "on holiday") {
			t.Errorf("logged %q", text)
		}
		eventually(t, "the group tells", func() error { return p.troubled("on holiday") })
		s.world.Outage(nil)
		s.populate(p)
		p.awaitSize("web", 2)
	})
}

// TestRefusedWrites: writes that the store neither accepts nor refuses are abandoned in time and
// reported, and the instances are created once writes succeed.
func TestRefusedWrites(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("MORE", `"request_timeout": "200ms",`))
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if strings.HasPrefix(r.Key, "instance/") && r.Verb == object.VerbPut {
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			return objecttest.Outcome{}
		})
		p := s.start().awaitLeading()
		p.await("problem")
		if reason := p.log.attr("problem", "reason"); reason != "StorageError" {
			t.Errorf("the reason is %q", reason)
		}
		s.store.Set(nil)
		s.populate(p)
		p.awaitSize("web", 2)
		if n := len(s.living()); n != 2 {
			t.Errorf("%d machines live", n)
		}
	})
}

// TestUnreadableGroups: an unreadable group record stops no instance: all stay, edits are
// refused with the reason, and the record takes effect again once it is repaired.
func TestUnreadableGroups(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("web", 3)
		good := s.get(webAt)
		s.put(webAt, `{ "size": [`)
		before := s.living()
		p.ends()
		s.world.ForgetCalls()
		q := s.successor()
		eventually(t, "the group tells", func() error { return q.troubled("can't be read") })
		_, err := q.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(status.Convert(err).Message(), "can't be read") {
			t.Errorf("an edit: %v", err)
		}
		if after := s.living(); !slices.Equal(before, after) || len(s.world.Calls(fake.OpCreate)) > 0 || len(s.world.Calls(fake.OpDelete)) > 0 {
			t.Errorf("%v live, were %v", after, before)
		}
		s.put(webAt, good)
		if _, err := q.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(4))}); err != nil {
			t.Fatal(err)
		}
		q.awaitSize("web", 4)
	})
}

// TestConfigThatNeedsARestart: a standby that takes over with a config with another provider
// than its own ends, to be restarted with it.
func TestConfigThatNeedsARestart(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		q := s.start(named("b"))
		q.await("serving")
		s.put("config/"+shardID+".jsonc", strings.ReplaceAll(s.text(), `"zone": "z"`, `"zone": "elsewhere"`))
		p.ends()
		<-q.done
		if q.err == nil || !strings.Contains(q.err.Error(), "server.provider") {
			t.Errorf("it ended with %v", q.err)
		}
	})
}
