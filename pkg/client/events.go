package client

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Events lists all events that a request selects, oldest first, and whether those of earlier leaders
// are missing.
func Events(ctx context.Context, s Service, req *nstancev1.ListEventsRequest) (*nstancev1.ListEventsResponse, error) {
	out := &nstancev1.ListEventsResponse{}
	all, err := Pages(func(token string) ([]*nstancev1.Event, string, error) {
		page := proto.CloneOf(req)
		page.PageToken = token
		resp, err := s.ListEvents(ctx, page)
		out.EarlierMissing = out.EarlierMissing || resp.GetEarlierMissing()
		return resp.GetEvents(), resp.GetNextPageToken(), err
	})
	out.Events = all
	return out, err
}

// WatchEvents follows the events of shards, like Watch. want returns what is requested of a shard.
// After a reconnection each stream goes on behind the last event that was seen, whichever leader
// answers. Only events that a crashed leader had not stored are missed.
func (c *Client) WatchEvents(
	ctx context.Context, shards []Shard, want func(Shard) *nstancev1.WatchEventsRequest, see func(Event) error,
) error {
	var watches []*watch
	for _, s := range shards {
		req := want(s)
		watches = append(watches, &watch{client: c, shard: s, of: WatchEvents, events: req, place: req.GetAfterId()})
	}
	return watchAll(ctx, watches, see)
}

func (w *watch) event(m *nstancev1.WatchEventsResponse) {
	switch e := m.GetEvent(); {
	case m.GetType() == nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END:
		w.see(Event{Kind: Synced, Shard: w.shard.ID, Of: w.of, EarlierMissing: m.GetEarlierMissing()})
	case m.GetType() == nstancev1.EventType_EVENT_TYPE_UPSERT && e != nil:
		if w.isLater(e.GetId()) {
			w.place = e.GetId()
		}
		w.see(Event{Kind: Changed, Shard: w.shard.ID, Of: w.of, Key: e.GetId(), Happened: e})
	}
}

// isLater reports whether an event comes after the place of the watch. One of an earlier leader may
// arrive late.
func (w *watch) isLater(id string) bool {
	is, err := fleet.ParseEventID(id)
	at, errAt := fleet.ParseEventID(w.place)
	return err == nil && (errAt != nil || is.Compare(at) > 0)
}
