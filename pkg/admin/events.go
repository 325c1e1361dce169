package admin

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Happened is one event of one shard: a decision, or an accepted change.
type Happened struct {
	Shard string
	*nstancev1.Event
}

// MarshalJSON implements json.Marshaler: the message's JSON with the shard.
func (h Happened) MarshalJSON() ([]byte, error) { return jsonOf(inShard{h.Shard}, h.Event) }

// By returns the actor in short: the role and id of a caller, or the rule.
func (h Happened) By() string {
	parts := strings.Split(h.GetActor(), "/")
	if len(parts) < 2 || !strings.HasPrefix(h.GetActor(), "spiffe://") {
		return h.GetActor()
	}
	return strings.Join(parts[len(parts)-2:], " ")
}

// EventQuery selects events; a zero field selects all.
type EventQuery struct {
	Since    time.Time
	Group    string
	Instance string
}

func (q EventQuery) since() *timestamppb.Timestamp {
	if q.Since.IsZero() {
		return nil
	}
	return timestamppb.New(q.Since)
}

// Events returns the events of all shards given, by time, and the shards where those of earlier
// leaders are missing. On an error it also returns the events of the shards that answered.
func (c *Client) Events(ctx context.Context, shards []client.Shard, q EventQuery) (all []Happened, missing []string, err error) {
	req := &nstancev1.ListEventsRequest{Since: q.since(), Group: q.Group, InstanceId: q.Instance}
	type answer struct {
		shard string
		resp  *nstancev1.ListEventsResponse
	}
	answers, err := each(ctx, c, shards, func(ctx context.Context, shard string, s client.Service) (answer, error) {
		resp, err := client.Events(ctx, s, req)
		return answer{shard, resp}, err
	})
	all = []Happened{}
	for _, a := range answers {
		for _, e := range a.resp.GetEvents() {
			all = append(all, Happened{a.shard, e})
		}
		if a.resp.GetEarlierMissing() {
			missing = append(missing, a.shard)
		}
	}
	slices.SortStableFunc(all, func(a, b Happened) int { // each shard's are in order
		return cmp.Or(a.GetAt().AsTime().Compare(b.GetAt().AsTime()), cmp.Compare(a.Shard, b.Shard))
	})
	return all, missing, err
}

// FollowEvents calls see for each event of the shards after those given, until ctx ends, which is not
// an error, or until a shard returns a permanent error. It reconnects by itself; lost is called when
// a shard can't be followed for now. Both are never called concurrently; an error of see ends it.
func (c *Client) FollowEvents(
	ctx context.Context, shards []client.Shard, q EventQuery, after []Happened, see func(Happened) error, lost func(error),
) error {
	last := map[string]fleet.EventID{}
	for _, h := range after {
		if id, err := fleet.ParseEventID(h.GetId()); err == nil && id.Compare(last[h.Shard]) > 0 {
			last[h.Shard] = id
		}
	}
	want := func(s client.Shard) *nstancev1.WatchEventsRequest {
		req := &nstancev1.WatchEventsRequest{Since: q.since(), Group: q.Group, InstanceId: q.Instance}
		if id := last[s.ID]; id != (fleet.EventID{}) {
			req.AfterId = id.String()
		}
		return req
	}
	return c.renewing(ctx, shards, func() error {
		return c.api.WatchEvents(ctx, shards, want, func(e client.Event) error {
			switch e.Kind {
			case client.Changed:
				return see(Happened{e.Shard, e.Happened})
			case client.Lost:
				lost(e.Err)
			case client.Gone, client.Synced:
			}
			return nil
		})
	})
}
