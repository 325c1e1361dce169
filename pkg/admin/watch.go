package admin

import (
	"context"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Kinds of watch events.
const (
	EventGroup     = "group"     // the current state of a group
	EventGroupGone = "groupGone" // the group is gone
	EventInstance  = "instance"  // a draining, deleting or deleted instance, or of any phase
	// EventInstanceGone is sent by WatchState only: the instance went while its shard could not
	// be watched.
	EventInstanceGone = "instanceGone"
	EventProblem      = "problem" // a problem of the shard
	// EventHappened is what the shard decided, or a change that it accepted.
	EventHappened = "event"
	// EventSnapshot ends the initial state. It is repeated after every reconnection, as events
	// may have been missed; after a resumed watch it ends only the changes since then. Problems
	// have no snapshot.
	EventSnapshot = "snapshot"
	EventLost     = "lost" // a shard can't be watched for now; the watch is retried
)

// Event is one event of a watch.
type Event struct {
	Kind     string    `json:"kind"`
	Shard    string    `json:"shard"`
	Of       string    `json:"of,omitempty"`  // of snapshot and lost: what is watched, such as groups
	Key      string    `json:"key,omitempty"` // of groupGone and instanceGone
	Resumed  bool      `json:"resumed,omitempty"`
	Group    *Group    `json:"group,omitempty"`
	Instance *Instance `json:"instance,omitempty"`
	Problem  *Problem  `json:"problem,omitempty"`
	Happened *Happened `json:"event,omitempty"`
	Error    string    `json:"error,omitempty"` // of lost
}

// Problem is a problem that a shard reports.
type Problem struct {
	*nstancev1.WatchErrorsResponse
}

// MarshalJSON implements json.Marshaler: the message's JSON.
func (p Problem) MarshalJSON() ([]byte, error) { return jsonOf(p.WatchErrorsResponse) }

// Watch follows the shards until ctx ends, which is not an error, or until a shard returns a
// permanent error. It reconnects by itself and keeps the client's identity renewed. see is
// never called concurrently; its error ends the watch.
func (c *Client) Watch(ctx context.Context, shards []client.Shard, of []string, see func(Event) error) error {
	return c.watch(ctx, shards, of, func(e client.Event) error {
		if e.Missed {
			return nil // the snapshot event covers it
		}
		return see(event(e))
	})
}

// WatchState is Watch for a caller that keeps the state: it also reports what went while a
// shard could not be watched.
func (c *Client) WatchState(ctx context.Context, shards []client.Shard, of []string, see func(Event) error) error {
	return c.watch(ctx, shards, of, func(e client.Event) error { return see(event(e)) })
}

func ofGroups(of string) bool { return of == client.WatchGroups || of == client.WatchGroupsWithoutVars }

func event(e client.Event) Event {
	out := Event{Shard: e.Shard}
	switch {
	case e.Kind == client.Gone && !ofGroups(e.Of):
		out.Kind, out.Key = EventInstanceGone, e.Key
	case e.Kind == client.Gone:
		out.Kind, out.Key = EventGroupGone, e.Key
	case e.Kind == client.Synced:
		out.Kind, out.Of, out.Resumed = EventSnapshot, e.Of, e.Resumed
	case e.Kind == client.Lost:
		out.Kind, out.Of, out.Error = EventLost, e.Of, e.Err.Error()
	case ofGroups(e.Of):
		out.Kind, out.Group = EventGroup, &Group{Shard: e.Shard, GroupStatus: e.Group, Bare: true}
	case e.Of == client.WatchInstances, e.Of == client.WatchAllInstances:
		out.Kind, out.Instance = EventInstance, &Instance{e.Shard, e.Instance}
	case e.Of == client.WatchEvents:
		out.Kind, out.Happened = EventHappened, &Happened{e.Shard, e.Happened}
	default:
		out.Kind, out.Problem = EventProblem, &Problem{e.Problem}
	}
	return out
}
