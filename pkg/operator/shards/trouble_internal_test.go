package shards

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/client"
)

// TestTroubleOfCalls ends with a successful call or a new connection, but not with a message of a
// stream that was open all the time.
func TestTroubleOfCalls(t *testing.T) {
	late := status.Error(codes.DeadlineExceeded, "too late")
	m := followed()
	is := func(want bool, what string) {
		t.Helper()
		if m.state.Reachable != want || (m.state.Err == nil) != want {
			t.Errorf("%s: %+v", what, m.state)
		}
	}
	is(true, "at first")
	m.note(m.tick, late)
	is(false, "after a call that was not answered")
	m.hear(0, word(2, "b"))
	is(false, "after a word of the stream")
	m.note(m.tick, status.Error(codes.NotFound, "no such group"))
	is(true, "after a call that was answered")

	before := m.tick
	m.note(before, late)
	m.hear(0, client.Event{Kind: client.Lost, Of: client.WatchGroups, Err: late})
	m.hear(0, word(2, "b"))
	is(false, "before a stream has told all anew")
	m.hear(0, client.Event{Kind: client.Synced, Of: client.WatchGroups})
	is(true, "when it has")
	m.note(before, late)
	is(true, "after the end of a call that began before")
	m.note(m.tick, late)
	is(false, "after one that began since")
	m.move([]string{"b"})
	is(true, "at other addresses")
}

// TestTroubleOfStreams ends with an answer to either stream, or to a call.
func TestTroubleOfStreams(t *testing.T) {
	gone := status.Error(codes.Unavailable, "gone")
	m := followed()
	for what, answer := range map[string]func(){
		"the other stream": func() { m.hear(0, word(3, "c")) },
		"a call":           func() { m.note(m.tick, nil) },
	} {
		if m.hear(0, client.Event{Kind: client.Lost, Of: client.WatchAllInstances, Err: gone}); m.state.Reachable {
			t.Errorf("lost: %+v", m.state)
		}
		if answer(); !m.state.Reachable {
			t.Errorf("with %s: %+v", what, m.state)
		}
	}
}
