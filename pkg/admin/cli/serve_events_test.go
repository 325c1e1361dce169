package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// sse is one server-sent event.
type sse struct{ id, kind, data string }

// events is a stream of events.
type events struct {
	t      *testing.T
	lines  *bufio.Scanner
	cancel context.CancelFunc
	last   string // id of the last event that had one
}

// events opens a stream.
func (s *served) events(t *testing.T, query, last string) *events {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if media := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || media != "text/event-stream" {
		t.Fatalf("status %d, of type %s", resp.StatusCode, media)
	}
	e := &events{t: t, lines: bufio.NewScanner(resp.Body), cancel: cancel}
	e.lines.Buffer(nil, 1<<20)
	return e
}

// next returns the next event; ok is false at the end of the stream.
func (e *events) next() (x sse, ok bool) {
	e.t.Helper()
	for e.lines.Scan() {
		field, value, _ := strings.Cut(e.lines.Text(), ": ")
		switch field {
		case "id":
			x.id, e.last = value, value
		case "event":
			x.kind = value
		case "data":
			x.data = value
		case "":
			if x.kind != "" {
				return x, true
			}
		}
	}
	return x, false
}

// until reads events up to one of a kind whose data contains a text, and returns all.
func (e *events) until(kind, text string) (all []sse) {
	e.t.Helper()
	for {
		x, ok := e.next()
		if !ok {
			e.t.Fatalf("the stream ended before %s with %q, after %v: %v", kind, text, all, e.lines.Err())
		}
		all = append(all, x)
		if x.kind == kind && strings.Contains(x.data, text) {
			return all
		}
	}
}

// change sets an instance's phase, and reports it to watches.
func (s *shard) change(id string, phase nstancev1.InstancePhase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := slices.Index(s.instances, s.find(id))
	next := proto.CloneOf(s.instances[n]) // earlier events have the one before
	next.Phase = phase
	s.instances[n] = next
	s.notify(next)
}

const (
	draining = nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING
	deleting = nstancev1.InstancePhase_INSTANCE_PHASE_DELETING
	deleted  = nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
)

// count returns how many events are of a kind and have a text.
func count(all []sse, kind, text string) (n int) {
	for _, x := range all {
		if x.kind == kind && strings.Contains(x.data, text) {
			n++
		}
	}
	return n
}

// TestEvents: a stream has the state and each change, and one that is resumed has no gap and
// nothing twice.
func TestEvents(t *testing.T) {
	c := newFixture(t).register()
	one, two := c.twoShards()
	s := c.serve()
	stream := s.events(t, "", "")
	stream.until("snapshot", `"shard":"one","of":"instances"`)
	one.change(someInstance, draining)
	stream.until("instance", `"shard":"one","instance":{"shard":"one","id":"`+someInstance+`"`)
	seen := stream.last
	stream.cancel()
	one.change(someInstance, deleting)
	one.change(someInstance, deleted)

	again := s.events(t, "", seen)
	missed := again.until("instance", "PHASE_DELETED")
	if count(missed, "instance", "PHASE_DELETING") != 1 || count(missed, "instance", "PHASE_DRAINING")+count(missed, "reset", "") != 0 {
		t.Errorf("resumed with %v, want what was missed alone", missed)
	}

	// A stream that begins has the present state: of the deleted instance nothing. What follows is news, which may be over.
	fresh := s.events(t, "", "")
	present := fresh.until("ready", "")
	state := slices.Clone(present)
	for kind, texts := range map[string][]string{
		"group": {`"shard":"one"`, `"shard":"two"`}, "problem": {`"reason":"ProviderError"`}, "snapshot": {`"shard":"two"`},
	} {
		for _, text := range texts {
			if count(state, kind, text) == 0 {
				state = append(state, fresh.until(kind, text)...) // the other shard's may come later
			}
		}
	}
	if count(present, "instance", `"shard":"one"`) != 0 || count(present, "problem", "CreatesFailing") != 0 {
		t.Errorf("the state has what is over: %v", present)
	}

	// The ids of another process say nothing.
	other := s.events(t, "?shard=two&only=instances", "0011223344556677-1-7").until("ready", "")
	if other[0].kind != "reset" || count(other, "instance", `"shard":"one"`)+count(other, "group", "") > 0 {
		t.Errorf("%v, want a reset and instances of shard two", other)
	}
	only := s.events(t, "?shard=two&only=instances", "")
	only.until("ready", "")
	one.setGroups(web(3, 3))
	two.change(someInstance, draining)
	for _, x := range only.until("instance", "PHASE_DRAINING") {
		if strings.Contains(x.data, `"shard":"one"`) || x.kind == "group" {
			t.Errorf("%v in a stream of instances of shard two", x)
		}
	}
}

// TestEventsAfterABreak: what went while a shard could not be watched is gone from the state.
func TestEventsAfterABreak(t *testing.T) {
	c := newFixture(t).register()
	one, _ := c.twoShards()
	s := c.serve()
	stream := s.events(t, "?shard=one&only=instances", "")
	stream.until("snapshot", `"of":"instances"`)
	one.removeUnwatched(someInstance)
	stream.until("lost", "the leader's term in which this stream was opened has ended")
	stream.until("instanceGone", someInstance)
	for _, x := range s.events(t, "?shard=one&only=instances", "").until("ready", "") {
		if x.kind == "instance" {
			t.Errorf("the state has %v", x)
		}
	}
}

// TestEventsOfShards: the state has the last 200 of what each shard decided and accepted, also for the
// stream with which the API begins to follow the shards, and further ones follow.
func TestEventsOfShards(t *testing.T) {
	c := newFixture(t).register()
	one, two := c.twoShards()
	for n := range 300 {
		one.happened(int64(n), "create", fmt.Sprintf("number %d.", n+1))
	}
	two.happened(1, "takeover", "it leads")
	s := c.serve()
	first := s.events(t, "?only=events&shard=one", "")
	begun := first.until("event", `"message":"live"`)
	if n := count(begun, "event", `"reason":"vm-gone"`); n != 200 || count(begun, "event", "number 100.")+count(begun, "group", "") != 0 {
		t.Errorf("%d events, want the last 200 alone: %v", n, begun)
	}
	if last := begun[len(begun)-2]; last.kind != "snapshot" || !strings.Contains(last.data, `"of":"events"`) {
		t.Errorf("%v, want the end of what there was", last)
	}
	state := s.events(t, "?only=events", "").until("ready", "")
	if n := count(state, "event", `{"kind":"event","shard":"one","event":{"shard":"one","id":"1.`); n != 200 ||
		count(state, "event", "number 101.") != 0 || count(state, "event", "number 102.") != 1 {
		t.Errorf("%d events of shard one, want the last 200: %v", n, state)
	}
	var cut string
	for _, x := range begun {
		if strings.Contains(x.data, "number 250.") {
			cut = x.id
		}
	}
	if cut == "" {
		t.Fatal("the event of the first stream has no id")
	}
	again := s.events(t, "?only=events&shard=one", cut).until("event", `"message":"live"`)
	if n := count(again, "event", "number"); n != 50 || count(again, "event", "number 250.")+count(again, "reset", "") != 0 {
		t.Errorf("resumed with %d events, want the 50 that followed: %v", n, again)
	}
	if all := s.events(t, "?only=groups", "").until("ready", ""); count(all, "event", "") != 0 {
		t.Errorf("events in a stream of groups: %v", all)
	}
}

// TestEventsEnd: a stream ends with the shards' refusal, or with the API.
func TestEventsEnd(t *testing.T) {
	c := newFixture(t).register()
	one, _ := c.twoShards()
	one.refusal = status.Error(codes.PermissionDenied, "this operator may not")
	s := c.serve()
	s.events(t, "", "").until("error", "shard one: this operator may not")

	one.mu.Lock()
	one.refusal = nil
	one.mu.Unlock()
	stream := s.events(t, "", "")
	stream.until("snapshot", "")
	go s.stop()
	for {
		if _, ok := stream.next(); !ok {
			break
		}
	}
	if err := stream.lines.Err(); err != nil {
		t.Errorf("the stream broke off: %v", err)
	}
}
