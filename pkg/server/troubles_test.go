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

// troubled reports whether a condition of group web says text.
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

// TestShardTrouble: what keeps the whole shard from acting is logged, and shown
// to whoever asks for its groups.
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

// TestRefusedWrites: writes that the store neither takes nor refuses are given
// up in time and told of, and what was to be made is made once they go through.
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

// TestUnreadableGroups: a dynamic groups object that is no text to be read stops
// nobody's work: all stay as they are, edits are refused with the reason, and the
// object takes effect again once it is mended.
func TestUnreadableGroups(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("web", 3)
		good := s.get(groupsAt)
		s.put(groupsAt, `{ "groups": [`)
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
		s.put(groupsAt, good)
		if _, err := q.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(4))}); err != nil {
			t.Fatal(err)
		}
		q.awaitSize("web", 4)
	})
}

// TestConfigThatNeedsARestart: a standby that takes over on a config whose
// provider is not the one it runs ends, so that it is started anew on it.
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
