package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/audit"
)

// book is a log with its lines, sink and clock.
type book struct {
	*audit.Log
	t     *testing.T
	text  bytes.Buffer
	now   time.Time
	given []audit.Event
}

func (b *book) Record(e audit.Event) { b.given = append(b.given, e) }

func newBook(t *testing.T) *book {
	t.Helper()
	b := &book{t: t, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	var err error
	b.Log, err = audit.New(audit.Config{Logger: slog.New(slog.NewJSONHandler(&b.text, nil)), Now: func() time.Time { return b.now }, Sink: b})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// lines returns the lines since the last call.
func (b *book) lines() (lines []map[string]any) {
	b.t.Helper()
	for line := range strings.Lines(b.text.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			b.t.Fatal(err)
		}
		lines = append(lines, fields)
	}
	b.text.Reset()
	return lines
}

func (b *book) refuse(from string, times int) {
	for range times {
		b.Log.Record(context.Background(), audit.Event{Kind: audit.Call, Outcome: audit.Refused, From: from, Action: "/x/Y", Reason: "no"})
	}
}

// TestLine: a line has the caller, the object, the change, the source address, and the reason.
func TestLine(t *testing.T) {
	b := newBook(t)
	b.Log.Record(t.Context(), audit.Event{
		Kind: audit.Change, Outcome: audit.Accepted, Actor: "spiffe://example/default/operator/a", From: "10.0.0.7:1", Action: "/x/UpsertGroup",
		Object: "group default/web", Changes: []audit.Detail{{Name: "size", From: "3", To: "0"}},
		Claims: []audit.Detail{{Name: "hostname", To: "h"}},
	})
	b.Log.Record(t.Context(), audit.Event{Kind: audit.Handshake, Outcome: audit.Refused, Action: "agent", Reason: "bad certificate"})
	b.Log.Record(t.Context(), audit.Event{Kind: audit.Call, Outcome: audit.Refused, Actor: "full token", Action: "/x/Y", Reason: "no"})
	b.Log.Record(t.Context(), audit.Event{Kind: audit.Call, Outcome: audit.Failed, Action: "/x/Y", Reason: "disk"})
	lines := b.lines()
	for n, want := range []map[string]any{
		{
			"msg": "accepted a change", "level": "INFO", "audit": "change", "caller": "spiffe://example/default/operator/a", "from": "10.0.0.7:1",
			"method": "/x/UpsertGroup", "object": "group default/web", "changes": map[string]any{"size": "3 -> 0"},
			"claims": map[string]any{"hostname": "h"},
		},
		{
			"msg": "refused a handshake", "level": "INFO", "audit": "handshake", "caller": "none", "from": "unknown", "method": "agent",
			"reason": "bad certificate",
		},
		{"msg": "refused a call", "level": "WARN", "audit": "call", "caller": "full token", "from": "unknown", "method": "/x/Y", "reason": "no"},
		{"msg": "a call failed", "level": "ERROR", "audit": "call", "caller": "none", "from": "unknown", "method": "/x/Y", "reason": "disk"},
	} {
		delete(lines[n], "time")
		if got, want := fmt.Sprint(lines[n]), fmt.Sprint(want); got != want {
			t.Errorf("line %d is %s, want %s", n, got, want)
		}
	}
	if len(b.given) != 4 || b.given[0].Object != "group default/web" || !b.given[0].Time.Equal(b.now) {
		t.Errorf("the sink was given %+v", b.given)
	}
}

// TestFlood: a source may write some lines, the next one has the number of omitted ones, other
// sources have their own budget, and everything is counted.
func TestFlood(t *testing.T) {
	b := newBook(t)
	b.refuse("10.0.0.7:1", 500)
	told := len(b.lines())
	if told != 20 || b.LeftOut() != 480 || len(b.given) != told {
		t.Fatalf("%d lines of 500, %d left out, %d given to the sink", told, b.LeftOut(), len(b.given))
	}
	b.refuse("10.0.0.8:1", 1)
	if lines := b.lines(); len(lines) != 1 || lines[0]["left_out"] != nil {
		t.Errorf("another source leaves %v", lines)
	}
	b.now = b.now.Add(-time.Hour) // setting the clock back gains no tokens
	b.refuse("10.0.0.7:2", 1)
	if lines := b.lines(); len(lines) != 0 {
		t.Errorf("after the clock was set back there is %v", lines)
	}
	b.now = b.now.Add(2 * time.Hour)
	b.refuse("10.0.0.7:9", 1)
	if lines := b.lines(); len(lines) != 1 || lines[0]["left_out"] != 481.0 {
		t.Errorf("after a pause there is %v, want one line with 481 left out", lines)
	}
	want := []audit.Tally{{Count: audit.Count{Kind: audit.Call, Outcome: audit.Refused}, Events: 503}}
	if got := b.Tallies(); !slices.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// TestManySources: lines and memory are limited in total, and omitted lines are counted.
// Accepted callers are not affected.
func TestManySources(t *testing.T) {
	b := newBook(t)
	const sources = 20_000
	for n := range sources {
		b.refuse(fmt.Sprintf("[2001:db8:%x:%x::1]:1", n/256, n%256), 1)
	}
	if told := len(b.lines()); told != 200 || b.LeftOut() != sources-200 {
		t.Errorf("%d lines of %d sources, and %d left out", told, sources, b.LeftOut())
	}
	for range 400 {
		b.Log.Record(t.Context(), audit.Event{Kind: audit.Change, Outcome: audit.Accepted, Actor: "spiffe://a", From: "10.0.0.7:1"})
	}
	if lines := b.lines(); len(lines) != 400 {
		t.Errorf("%d lines of 400 changes", len(lines))
	}
	b.now = b.now.Add(time.Minute)
	b.refuse("10.0.0.7:1", 1)
	if lines := b.lines(); len(lines) != 1 || lines[0]["left_out"] != float64(sources-200) {
		t.Errorf("the next line is %v, want %d left out", lines, sources-200)
	}
}

// TestOneMachineIsOneSource: whichever address of its /64 it uses, in whichever form.
func TestOneMachineIsOneSource(t *testing.T) {
	for _, of := range []func(n int) string{
		func(n int) string { return fmt.Sprintf("[2001:db8::%x]:1", n) },
		func(n int) string { return fmt.Sprintf("[fe80::%x%%eth%d]:1", n, n) },
		func(n int) string { return []string{"10.0.0.7:1", "[::ffff:10.0.0.7]:1"}[n%2] },
		func(int) string { return "" },
	} {
		b := newBook(t)
		for n := range 100 {
			b.refuse(of(n), 1)
		}
		if lines := b.lines(); len(lines) != 20 {
			t.Errorf("%s and the like leave %d lines, want 20", of(1), len(lines))
		}
	}
}

// TestTextsAreBounded: long texts can't fill the log.
func TestTextsAreBounded(t *testing.T) {
	b := newBook(t)
	long, note := strings.Repeat("x", 1<<20), &audit.Note{}
	ctx := audit.WithNote(t.Context(), note)
	var wait sync.WaitGroup
	for range 100 {
		wait.Go(func() { audit.Claimed(ctx, long, long); audit.Wanted(ctx, audit.Detail{Name: long, To: long}) })
	}
	wait.Wait()
	e := audit.Event{Kind: audit.Call, Outcome: audit.Refused, Actor: long, From: long, Action: long, Reason: long}
	audit.On(ctx, long)
	note.Fill(&e)
	b.Log.Record(ctx, e)
	if n := b.text.Len(); n == 0 || n > 2*2*audit.MaxDetails*audit.MaxText+16*audit.MaxText {
		t.Errorf("the line has %d bytes", n)
	}
}

// TestNotes: unchanged values are not noted, and without a note nothing is. What was wanted is
// recorded if the outcome is unknown.
func TestNotes(t *testing.T) {
	note := &audit.Note{}
	ctx := audit.WithNote(t.Context(), note)
	audit.On(ctx, "group default/web")
	audit.Changed(ctx, audit.Detail{Name: "size", From: "3", To: "3"}, audit.Detail{Name: "template", From: "a", To: "b"})
	audit.Claimed(ctx, "ip", "10.0.0.1", "", "10.0.0.2")
	audit.On(t.Context(), "nothing")
	var e audit.Event
	note.Fill(&e)
	want := audit.Event{
		Object: "group default/web", Changes: []audit.Detail{{Name: "template", From: "a", To: "b"}},
		Claims: []audit.Detail{{Name: "ip", To: "10.0.0.1"}, {Name: "ip", To: "10.0.0.2"}},
	}
	if fmt.Sprint(e) != fmt.Sprint(want) {
		t.Errorf("noted %+v, want %+v", e, want)
	}
	for outcome, want := range map[audit.Outcome]string{
		audit.Accepted: "[] []", audit.Unknown: "[] [{size 3 0}]", audit.Refused: "[] [{size 3 0}]", audit.Failed: "[] [{size 3 0}]",
	} {
		note := &audit.Note{}
		audit.Wanted(audit.WithNote(t.Context(), note), audit.Detail{Name: "size", From: "3", To: "0"},
			audit.Detail{Name: "a", From: "b", To: "b"})
		e := audit.Event{Outcome: outcome}
		note.Fill(&e)
		if got := fmt.Sprint(e.Changes, " ", e.Wanted); got != want {
			t.Errorf("what was wanted and not seen to happen is, of a call that was %s, %s, want %s", outcome, got, want)
		}
	}
	audit.Wanted(ctx, audit.Detail{Name: "template", From: "a", To: "c"})
	e = audit.Event{Outcome: audit.Failed}
	if note.Fill(&e); len(e.Changes) != 1 || len(e.Wanted) != 0 {
		t.Errorf("a change that was carried out is told as %+v, want what it was, and nothing of what was wanted", e)
	}
	var none *audit.Log
	none.Record(t.Context(), e)
	if _, err := audit.New(audit.Config{}); err == nil {
		t.Error("a log without a logger is made")
	}
}

// TestRepeatsHideNoChange: after a caller's unchanged repeats have used up its lines, its next
// change still has one, with the number of omitted lines.
func TestRepeatsHideNoChange(t *testing.T) {
	b := newBook(t)
	e := audit.Event{Kind: audit.Change, Outcome: audit.Accepted, Actor: "spiffe://example/default/operator/a", From: "10.0.0.7:1"}
	for range 700 {
		b.Log.Record(t.Context(), e)
	}
	if got := len(b.lines()); got != 500 {
		t.Errorf("700 calls that changed nothing left %d lines, want 500", got)
	}
	e.Changes = []audit.Detail{{Name: "size", From: "3", To: "0"}}
	b.Log.Record(t.Context(), e)
	lines := b.lines()
	if len(lines) != 1 || lines[0]["left_out"] != 200.0 {
		t.Errorf("the change left %v, want a line that tells of 200", lines)
	}
}

// TestRefusalsOfCallers: refusals of callers without an identity hide none of those with one, from
// the same address or from any, and one of these hides no other's.
func TestRefusalsOfCallers(t *testing.T) {
	b := newBook(t)
	b.refuse("10.0.0.7:1", 100)
	for n := range 1000 {
		b.refuse(fmt.Sprintf("10.1.%d.%d:1", n/256, n%256), 1)
	}
	b.lines()
	refuse := func(who string) {
		b.Log.Record(t.Context(), audit.Event{Kind: audit.Change, Outcome: audit.Refused, Actor: "spiffe://example/" + who, From: "10.0.0.7:1"})
	}
	for range 100 {
		refuse("loud")
	}
	if lines := b.lines(); len(lines) != 20 {
		t.Errorf("100 refusals of one identity left %d lines, want 20", len(lines))
	}
	refuse("quiet")
	if lines := b.lines(); len(lines) != 1 {
		t.Errorf("the refusal of another left %v, want one line", lines)
	}
}

// TestUnknownOutcome: a change with an unknown outcome has a line.
func TestUnknownOutcome(t *testing.T) {
	b := newBook(t)
	b.Log.Record(t.Context(), audit.Event{
		Kind: audit.Change, Outcome: audit.Unknown, Object: "group default/web", Reason: "canceled",
		Wanted: []audit.Detail{{Name: "size", From: "3", To: "0"}},
	})
	lines := b.lines()
	if len(lines) != 1 || lines[0]["msg"] != "a change may have been carried out" || lines[0]["level"] != "WARN" {
		t.Fatalf("it left %v", lines)
	}
	if got := fmt.Sprint(lines[0]["wanted"], lines[0]["changes"]); got != "map[size:3 -> 0] <nil>" {
		t.Errorf("the line says %v, want what may have happened, and not that it did", lines[0])
	}
}
