package server_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// preview requests the preview of a text, or of the stored config if it is nil.
func (p *process) preview(text []byte) (*nstancev1.PreviewConfigResponse, error) {
	return p.operator("default").PreviewConfig(within(p.t), &nstancev1.PreviewConfigRequest{Text: text})
}

// TestPreviewIsWhatARefreshDoes: the preview of the stored config, that of its text, and what a
// refresh says it did, are the same; the previews change nothing.
func TestPreviewIsWhatARefreshDoes(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.awaitSize("web", 2)
		machines, before := s.living(), p.configStatus()
		s.replace(`{ "n": 1 }`, `{ "n": 2 }`, `"size": 2`, `"size": 3`)
		var writes atomic.Int32
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb != object.VerbGet && !strings.HasPrefix(r.Key, "leader/") && !strings.HasPrefix(r.Key, "cluster/operator/") &&
				!strings.HasPrefix(r.Key, "events/") {
				writes.Add(1)
			}
			return objecttest.Outcome{}
		})
		s.world.ForgetCalls()
		stored, err := p.preview(nil)
		if err != nil {
			t.Fatal(err)
		}
		given, err := p.preview([]byte(s.get(configAt)))
		if err != nil {
			t.Fatal(err)
		}
		if stored.GetEtag() == "" || given.GetEtag() != "" || !proto.Equal(stored.GetPreview(), given.GetPreview()) {
			t.Errorf("stored: %v\ngiven: %v", stored, given)
		}
		if n, after := writes.Load(), p.configStatus(); n > 0 || !proto.Equal(before, after) || !slices.Equal(s.living(), machines) ||
			len(s.world.Calls(fake.OpCreate)) > 0 {
			t.Errorf("%d writes; status %v, was %v", n, after, before)
		}
		if g := stored.GetPreview().GetGroups(); len(g) != 1 || g[0].GetGroup() != "web" || g[0].GetSizeBefore() != 2 || g[0].GetSize() != 3 ||
			g[0].GetInstances() != 2 || g[0].GetReplaced() != 0 || !slices.Equal(g[0].GetFields(), []string{"size", "vars"}) {
			t.Errorf("the groups are %v", g)
		}
		if did := p.refreshes(updated); !proto.Equal(did.GetPreview(), stored.GetPreview()) {
			t.Errorf("did: %v\npreview: %v", did.GetPreview(), stored.GetPreview())
		}
		p.awaitSize("web", 3)
		if again := p.refreshes(unchanged); again.GetPreview() != nil {
			t.Errorf("did %v", again.GetPreview())
		}
	})
}

// TestPreviewOfRemovals: a preview has what would have to be confirmed, and is not refused.
func TestPreviewOfRemovals(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.awaitSize("web", 2)
		s.replace(`"size": 2`, `"size": 0`, `"kind": "fake"`, `"kind": "fake", "options": { "a": 1 }`)
		resp, err := p.preview(nil)
		if err != nil {
			t.Fatal(err)
		}
		if r := resp.GetPreview().GetRemovals(); len(r) != 1 || r[0].GetGroup() != "web" || !r[0].GetEmptied() || r[0].GetInstances() != 2 {
			t.Errorf("the removals are %v", r)
		}
		if r := resp.GetPreview().GetRestartRequired(); !slices.Equal(r, []string{"server.provider"}) {
			t.Errorf("a restart is required for %v", r)
		}
		if c := p.configStatus(); c.GetRunningApplied() || len(c.GetAwaitsConfirmation()) > 0 {
			t.Errorf("the status is %v", c)
		}
		if len(s.living()) != 2 {
			t.Errorf("%v live", s.living())
		}
	})
}

// TestPreviewOfMistakes: an invalid text is refused with all of its mistakes, and is not noted.
func TestPreviewOfMistakes(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		text := strings.NewReplacer(`"size": 2`, `"size": -1`, `"template": "knd"`, `"template": "none"`).Replace(s.text())
		for name, body := range map[string][]byte{"given": []byte(text), "empty": {}, "stored": nil} {
			if body == nil {
				s.put(configAt, text)
			}
			resp, err := p.preview(body)
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v, %v", name, resp, err)
			}
			if name != "empty" && (!strings.Contains(err.Error(), "size") || !strings.Contains(err.Error(), "none")) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if c := p.configStatus(); c.GetRunningApplied() || len(c.GetViolations()) > 0 {
			t.Errorf("the status is %v", c)
		}
		if _, err := p.preview(make([]byte, 1_000_001)); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "text") {
			t.Errorf("too large: %v", err)
		}
	})
}

// TestPreviewCountsReplacements: after a preview, the rotation creates as many machines as it
// says, and never has more beyond the size than it says at a time.
func TestPreviewCountsReplacements(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.awaitSize("web", 2)
		before := s.living()
		s.replace(`"arch": "amd64", "subnet_pool": "workers"`, `"arch": "amd64", "instance_type": "other", "subnet_pool": "workers"`)
		resp, err := p.preview(nil)
		if err != nil {
			t.Fatal(err)
		}
		groups := resp.GetPreview().GetGroups()
		if len(groups) != 1 || groups[0].GetReplaced() != 2 || groups[0].GetAtATime() != 1 {
			t.Fatalf("the preview is %v", groups)
		}
		s.world.ForgetCalls()
		p.refreshes(updated)
		most := 0
		eventually(t, "all are replaced", func() error {
			now := s.living()
			most = max(most, len(now))
			for _, id := range before {
				if slices.Contains(now, id) {
					return fmt.Errorf("%s of %v lives", id, now)
				}
			}
			return nil
		})
		p.awaitSize("web", 2)
		if created := len(s.world.Calls(fake.OpCreate)); created != int(groups[0].GetReplaced()) || most > 2+int(groups[0].GetAtATime()) {
			t.Errorf("%d created, %d at a time; the preview was %v", created, most, groups)
		}
		if after, err := p.preview(nil); err != nil || len(after.GetPreview().GetGroups()) > 0 {
			t.Errorf("afterwards: %v, %v", after, err)
		}
	})
}
