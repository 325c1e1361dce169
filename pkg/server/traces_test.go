package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server"
	"github.com/nstance/nstance/pkg/tracing"
	"github.com/nstance/nstance/pkg/tracing/otlp"
	"github.com/nstance/nstance/pkg/tracing/otlp/otlptest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// traced has a server make traces.
func traced(to *otlptest.Recorder) func(*server.Config) {
	return func(c *server.Config) { c.Tracer = otlp.Recorded(to, time.Now) }
}

// tracing agents make them, too.
func tracingAgents(to *otlptest.Recorder) func(*guests) {
	return func(g *guests) { g.tracer = otlp.Recorded(to, time.Now) }
}

// starts waits until n starts of instances are over, and returns them.
func starts(t *testing.T, got *otlptest.Recorder, n int) []otlptest.Span {
	t.Helper()
	eventually(t, "starts are over", func() error {
		if all := got.Named("start instance"); len(all) != n {
			return fmt.Errorf("%d are, want %d", len(all), n)
		}
		return nil
	})
	time.Sleep(time.Minute) // nothing else may end, or end again
	all, seen := got.Named("start instance"), map[string]bool{}
	for _, one := range all {
		seen[one.Trace] = true
	}
	if len(all) != n || len(seen) != n {
		t.Errorf("%d starts of %d instances are over, want %d", len(all), len(seen), n)
	}
	return all
}

// trace returns the trace of an instance as a tree, without the calls that depend on what is cached.
func trace(got *otlptest.Recorder, id fleet.InstanceID) string {
	lines := strings.Split(got.Tree(tracing.InstanceTrace(string(id))), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		return strings.Contains(line, "free_addresses") || strings.Contains(line, " leader")
	}), "\n")
}

// TestReplacementIsOneTrace: from the death of a machine until its replacement has reported, with what
// servers and agents do for it.
func TestReplacementIsOneTrace(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.world = fake.New(fake.Config{CreateLatency: fake.Fixed(3 * time.Second), Boot: fake.Fixed(20 * time.Second)})
		var got otlptest.Recorder
		p := s.start(traced(&got)).awaitLeading()
		g := s.inhabit(p, tracingAgents(&got))
		starts(t, &got, 2)
		time.Sleep(time.Minute)
		dead := s.living()[0]
		died := time.Now()
		s.world.Kill(dead)
		g.stop[dead]()
		one := starts(t, &got, 3)[2]
		id := fleet.InstanceID(one.Attributes[tracing.AttrInstance])
		if tree := trace(&got, id); tree != strings.TrimSpace(`
start instance
  decide
  queue
  create
    store put instance
    provider create
    store put instance
  boot
  agent register
    register
      store put instance
  become ready
  agent report`) {
			t.Errorf("the trace is\n%s", tree)
		}
		about := one.Attributes
		if about["nstance.replaces"] != string(dead) || about["nstance.sign"] == "" || about[tracing.AttrGroup] != "web" {
			t.Errorf("it is said to be %v", one.Attributes)
		}
		if took := one.To.Sub(one.From); one.From.Sub(died) > time.Second || took < 23*time.Second || took > 25*time.Second {
			t.Errorf("it began %s after the death, and took %s", one.From.Sub(died), took)
		}
		for _, part := range got.Of(one.Trace) {
			if part.From.Before(one.From) || part.To.After(one.To.Add(time.Second)) {
				t.Errorf("%s is not within the start: %+v", part.Name, part)
			}
			least := map[string]time.Duration{"provider create": 3 * time.Second, "boot": 19 * time.Second}[part.Name]
			if long := part.To.Sub(part.From); long < least {
				t.Errorf("%s took %s, want %s at least", part.Name, long, least)
			}
		}
	})
}

// TestStartOfTwoLeaders: a start that one leader begins and another ends is one trace, too.
func TestStartOfTwoLeaders(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.world = fake.New(fake.Config{Boot: fake.Fixed(5 * time.Minute)})
		s.config["MORE"] = `"garbage_collection": { "registration_timeout": "1h" },`
		s.putConfig(shardID)
		var got otlptest.Recorder
		p := s.start(traced(&got)).awaitLeading()
		time.Sleep(time.Minute)
		ids := s.living()
		if err := p.shutdown(); err != nil {
			t.Fatal(err)
		}
		q := s.start(named("b"), traced(&got)).awaitLeading()
		s.inhabit(q, tracingAgents(&got))
		time.Sleep(4 * time.Minute)
		for _, one := range starts(t, &got, 2) {
			if long := one.To.Sub(one.From); long < 5*time.Minute || long > 6*time.Minute {
				t.Errorf("the start took %s", long)
			}
		}
		tree := trace(&got, ids[0])
		if strings.Contains(tree, "?") || !strings.Contains(tree, "provider create") || !strings.Contains(tree, "agent report") {
			t.Errorf("the trace is\n%s", tree)
		}
	})
}

// TestFailedStart: a start that fails ends with the reason.
func TestFailedStart(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: provider.ErrInvalid})
		var got otlptest.Recorder
		s.inhabit(s.start(traced(&got)).awaitLeading(), tracingAgents(&got))
		failed := slices.DeleteFunc(starts(t, &got, 3), func(one otlptest.Span) bool { return one.Err == "" })
		if len(failed) != 1 || !strings.Contains(failed[0].Err, provider.ErrInvalid.Error()) {
			t.Fatalf("the failed start is %+v", failed)
		}
		for _, name := range []string{"create", "provider create"} {
			has := func(one otlptest.Span) bool { return one.Err != "" && one.Trace == failed[0].Trace }
			if all := got.Named(name); !slices.ContainsFunc(all, has) {
				t.Errorf("no %s has failed: %+v", name, all)
			}
		}
	})
}

// TestStartThatIsNotRecordedAtFirst: while object storage is away, a start goes on with the same id, and is
// over once.
func TestStartThatIsNotRecordedAtFirst(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		var got otlptest.Recorder
		back := time.Now().Add(30 * time.Second)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "instance/") && time.Now().Before(back) {
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			return objecttest.Outcome{}
		})
		s.inhabit(s.start(traced(&got)).awaitLeading(), tracingAgents(&got))
		attempts := 0
		for _, one := range starts(t, &got, 2) {
			tree := got.Tree(one.Trace)
			queues, creates := strings.Count(tree, "\n  queue"), strings.Count(tree, "\n  create")
			if attempts += creates; one.Err != "" || queues != creates {
				t.Errorf("%q:\n%s", one.Err, tree)
			}
		}
		if attempts <= 2 {
			t.Errorf("%d attempts: none has failed", attempts)
		}
	})
}

// TestEditIsTraced: an edit, and what instances get because of it, is a part of its caller's trace.
func TestEditIsTraced(t *testing.T) {
	simulated(t, func(t *testing.T) {
		var got otlptest.Recorder
		s := furnished(t, `"default": { "web": { "template": "knd", "size": 2 } }`)
		p := s.start(traced(&got)).awaitLeading()
		g := s.inhabit(p, tracingAgents(&got))
		p.awaitSize("web", 2)
		ids := s.living()
		for _, id := range ids {
			g.awaitFile(id, "app.conf", "info "+string(id))
		}
		if n := len(got.Named("deliver files")); n != 0 {
			t.Errorf("%d deliveries without an edit are traced", n)
		}

		ctx, end := otlp.Recorded(&got, time.Now).Start(within(t), tracing.Internal, "caller")
		_, err := p.operator("default").UpsertGroup(tracing.Outgoing(ctx), &nstancev1.UpsertGroupRequest{
			Key: "web", Vars: &structpb.Struct{Fields: map[string]*structpb.Value{"level": structpb.NewStringValue("debug")}},
		})
		end(err)
		for _, id := range ids {
			g.awaitFile(id, "app.conf", "debug "+string(id))
		}
		time.Sleep(time.Second) // the reports that confirm them
		if tree := got.Tree(got.Named("caller")[0].Trace); tree != strings.TrimSpace(`
caller
  nstance.v1.OperatorService/UpsertGroup
    store put groups
    deliver files
      agent write files
    deliver files
      agent write files`) {
			t.Errorf("the trace is\n%s", tree)
		}

		time.Sleep(11 * time.Minute)
		got.Forget()
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(-1))}); err == nil {
			t.Error("a negative size is accepted")
		}
		s.replace("{{ .Vars.level }}", "now {{ .Vars.level }}")
		p.refresh()
		for _, id := range ids {
			g.awaitFile(id, "app.conf", "now debug "+string(id))
		}
		time.Sleep(time.Second)
		for call, deliveries := range map[string]int{"UpsertGroup": 0, "RefreshConfig": 2} {
			one := got.Named("nstance.v1.OperatorService/" + call)[0]
			tree := got.Tree(one.Trace)
			if n := strings.Count(tree, "\n  deliver files\n    agent write files"); n != deliveries || (one.Err != "") != (deliveries == 0) {
				t.Errorf("%s, %q:\n%s", call, one.Err, tree)
			}
		}
	})
}
