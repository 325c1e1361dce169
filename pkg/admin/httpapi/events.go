package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

const (
	eventsPath = "/events"
	// heartbeat is how often a stream without events sends a comment, so that neither end takes
	// it for dead.
	heartbeat = 15 * time.Second
	// sendTimeout is how long a client may take to accept data.
	sendTimeout = 30 * time.Second
)

type eventsInput struct {
	Target
	Only        []string `query:"only" enum:"groups,instances,problems,events" doc:"Only events of these"`
	LastEventID string   `header:"Last-Event-ID" doc:"The id of the last event of an earlier stream: send only what followed it"`
}

func (a *API) events() {
	op := a.operation(operation{
		id: "events", method: http.MethodGet, path: eventsPath, summary: "Follow groups, instances, problems and the shards' events", local: true,
		description: "Server-sent events. The present state comes first, and then each change, as `nstance-admin watch --all -o json` prints " +
			"them; the name of an event is its kind. An `event` is what a shard decided or a change that it accepted: the state has the " +
			"last 200 of each shard. `ready` ends the state, as far as it is known: `snapshot` says that all groups or " +
			"instances of a shard are, and `lost` that the shard can't be watched for now. After `reset` the state comes again, since " +
			"the stream was too slow, or was resumed too late: forget what was sent before.",
	})
	op.Responses["200"] = &huma.Response{
		Description: "The events",
		Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}
	//nolint:contextcheck // the stream lasts as long as its own request
	huma.Register(a.huma, op, func(_ context.Context, in *eventsInput) (*huma.StreamResponse, error) {
		shards, err := in.read(a.cfg.Shards)
		if err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			s := &stream{w: w, control: http.NewResponseController(w), hub: a.hub, of: in.Only}
			s.allowed = func() error {
				_, _, err := a.cfg.Access.of(r.Header.Get("Authorization"), a.cfg.Logger)
				return err
			}
			for _, shard := range shards {
				s.shards = append(s.shards, shard.ID)
			}
			// The deadline of the request must not end the stream, but that of an unread body has to end.
			if r.ContentLength == 0 && s.control.SetReadDeadline(time.Time{}) != nil {
				return
			}
			s.run(r.Context(), in.LastEventID)
		}}, nil
	})
}

// stream is one stream of events to one client.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	hub     *hub
	shards  []string
	of      []string // empty: all
	// allowed says why the request would be refused by now.
	allowed func() error
}

// run sends events until the client goes, its token is refused, or the API is closed.
func (s *stream) run(ctx context.Context, last string) {
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.Header().Set("X-Accel-Buffering", "no")
	s.hub.start() //nolint:contextcheck // it follows the shards for all streams
	run, position := s.hub.parse(last)
	sent := false
	for {
		b := s.hub.after(run, position)
		if b.closed || b.failed != nil {
			_ = s.send(s.ending(b)) // the client connects again
			return
		}
		if !sent || len(b.entries) > 0 || b.whole {
			if s.send(s.text(b, sent || last != "")) != nil {
				return
			}
			sent = true
		}
		run, position = b.run, b.next
		select {
		case <-b.changed:
		case <-ctx.Done():
			return
		case <-time.After(heartbeat):
			if s.send(": alive\n\n") != nil {
				return
			}
		}
	}
}

// text formats a batch. Of a state only the end has an id: a stream that breaks before it
// begins again. again: the client has an earlier state.
func (s *stream) text(b batch, again bool) string {
	var out strings.Builder
	if b.whole && again {
		out.WriteString("event: reset\ndata: {}\n\n")
	}
	for _, x := range b.entries {
		if !slices.Contains(s.shards, x.shard) || len(s.of) > 0 && !slices.Contains(s.of, strings.TrimPrefix(x.of, "all-")) {
			continue
		}
		if !b.whole {
			fmt.Fprintf(&out, "id: %s\n", s.hub.id(b.run, x.seq+1))
		}
		fmt.Fprintf(&out, "event: %s\ndata: %s\n\n", x.kind, x.data)
	}
	if b.whole {
		fmt.Fprintf(&out, "id: %s\nevent: ready\ndata: {}\n\n", s.hub.id(b.run, b.next))
	}
	return out.String()
}

// ending says why a stream ends.
func (s *stream) ending(b batch) string {
	if b.closed {
		return ": closing\n\n"
	}
	p := problemOf(failures(b.failed, false))
	return fmt.Sprintf("event: error\ndata: %s\n\n", p.json())
}

// send sends a text, unless the request would be refused by now: a token may be removed while its stream
// is open.
func (s *stream) send(text string) error {
	if err := s.allowed(); err != nil {
		return err
	}
	if err := s.control.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}
