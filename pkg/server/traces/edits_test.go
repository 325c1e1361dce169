package traces_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/traces"
	"github.com/nstance/nstance/pkg/tracing"
	"github.com/nstance/nstance/pkg/tracing/otlp"
	"github.com/nstance/nstance/pkg/tracing/otlp/otlptest"
)

func group(name string) fleet.GroupKey { return fleet.GroupKey{Tenant: "default", Name: name} }

// TestEdits: a delivery belongs to the last edit of its group, or of every group, for ten minutes.
func TestEdits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got otlptest.Recorder
		tracer := otlp.Recorded(&got, time.Now)
		edits := traces.NewEdits(tracer, time.Now)
		edit := func(name string, key fleet.GroupKey) (failed func()) {
			ctx, end := tracer.Start(t.Context(), tracing.Server, name)
			defer end(nil)
			return edits.Began(ctx, key)
		}
		of := func(key fleet.GroupKey) string {
			traceparent, end := edits.Deliver(t.Context(), key, "knd1")
			end(errors.New("not confirmed"))
			if traceparent == "" {
				return ""
			}
			delivery := got.Named("deliver files")[len(got.Named("deliver files"))-1]
			if !strings.Contains(traceparent, delivery.ID) || delivery.Err != "not confirmed" {
				t.Errorf("the agent is sent %s, of the span %+v", traceparent, delivery)
			}
			return got.Of(delivery.Trace)[0].Name
		}
		want := func(key fleet.GroupKey, name string) {
			t.Helper()
			if has := of(key); has != name {
				t.Errorf("a delivery to %s belongs to %q, want %q", key, has, name)
			}
		}
		want(group("web"), "")
		edit("first", group("web"))
		want(group("web"), "first")
		want(group("db"), "")
		time.Sleep(time.Minute)
		edit("refresh", fleet.GroupKey{})
		want(group("web"), "refresh")
		want(group("db"), "refresh")
		time.Sleep(time.Minute)
		second := edit("second", group("web"))
		third := edit("third", group("web"))
		second()
		want(group("web"), "third")
		third()
		want(group("web"), "second")
		edits.Began(t.Context(), group("web")) // the call is not traced
		want(group("web"), "")
		want(group("db"), "refresh")
		time.Sleep(10 * time.Minute)
		want(group("db"), "")

		// What is remembered is bounded, and makes room.
		for n := range 3000 {
			edit("many", group(fmt.Sprint("g", n)))
		}
		want(group("g0"), "many")
		want(group("g2999"), "")
		edit("again", group("g0"))
		want(group("g0"), "again")
		time.Sleep(10 * time.Minute)
		edit("later", group("g2999"))
		want(group("g2999"), "later")
	})
}

// TestNone: without a tracer nothing is followed.
func TestNone(t *testing.T) {
	edits, starts := traces.NewEdits(nil, time.Now), traces.NewStarts(nil, time.Now)
	edits.Began(t.Context(), group("web"))()
	traceparent, end := edits.Deliver(t.Context(), group("web"), "knd1")
	end(nil)
	ctx, end := starts.Launch(t.Context(), traces.Launch{})
	end(nil)
	starts.Pending("knd1", func(fleet.InstanceID) (fleet.Instance, bool) { return fleet.Instance{Phase: fleet.Pending}, true })
	starts.Made("knd1")
	starts.Failed("knd1", errors.New("no"))
	starts.Changed(ctx, fleet.Instance{}, true)
	if traceparent != "" || starts.Follows("") || ctx != t.Context() {
		t.Error("something is traced")
	}
}
