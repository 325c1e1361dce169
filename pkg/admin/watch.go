package admin

import (
	"context"
	"time"

	"github.com/nstance/nstance/pkg/client"
)

// The kinds of watch events.
const (
	EventGroup     = "group"     // a group is, or has become, like this
	EventGroupGone = "groupGone" // there is no such group any more
	EventInstance  = "instance"  // a draining, deleting or deleted instance, or any one
	EventProblem   = "problem"   // something that a person may have to know
	// EventSnapshot ends what was there when the watch began; it comes again after
	// every reconnection, since events in between were missed. One that is resumed
	// ends only what has changed since. Problems have none.
	EventSnapshot = "snapshot"
	EventLost     = "lost" // a shard can't be watched for now; it is tried again
)

// Event is one thing that a watch saw.
type Event struct {
	Kind     string    `json:"kind"`
	Shard    string    `json:"shard"`
	Of       string    `json:"of,omitempty"`  // of snapshot and lost: groups | instances | all-instances | problems
	Key      string    `json:"key,omitempty"` // of groupGone
	Resumed  bool      `json:"resumed,omitempty"`
	Group    *Group    `json:"group,omitempty"`
	Instance *Instance `json:"instance,omitempty"`
	Problem  *Problem  `json:"problem,omitempty"`
	Error    string    `json:"error,omitempty"` // of lost
}

// Problem is what a shard reports of itself.
type Problem struct {
	At         *time.Time `json:"at,omitempty"`
	Reason     string     `json:"reason"`
	Message    string     `json:"message"`
	Group      string     `json:"group,omitempty"`
	InstanceID string     `json:"instance_id,omitempty"`
	Over       bool       `json:"over,omitempty"` // the one with this reason, group and instance is no more
}

// Watch follows the shards until ctx ends, which is no error, or until one says
// what no repetition can mend. It reconnects by itself, and keeps the client's
// identity renewed. see is called for one event at a time; its error ends the
// watch.
func (c *Client) Watch(ctx context.Context, shards []client.Shard, of []string, see func(Event) error) error {
	return c.watch(ctx, shards, of, func(e client.Event) error {
		if e.Missed {
			return nil // the snapshot says so
		}
		return see(event(e))
	})
}

func event(e client.Event) Event {
	out := Event{Shard: e.Shard}
	switch {
	case e.Kind == client.Gone:
		out.Kind, out.Key = EventGroupGone, e.Key
	case e.Kind == client.Synced:
		out.Kind, out.Of, out.Resumed = EventSnapshot, e.Of, e.Resumed
	case e.Kind == client.Lost:
		out.Kind, out.Of, out.Error = EventLost, e.Of, e.Err.Error()
	case e.Of == client.WatchGroups:
		g := group(e.Shard, e.Group)
		out.Kind, out.Group = EventGroup, &g
	case e.Of == client.WatchInstances, e.Of == client.WatchAllInstances:
		i := instance(e.Shard, e.Instance)
		out.Kind, out.Instance = EventInstance, &i
	default:
		p := e.Problem
		out.Kind, out.Problem = EventProblem, &Problem{
			At: timeOf(p.GetAt()), Reason: p.GetReason(), Message: p.GetMessage(), Group: p.GetGroup(), InstanceID: p.GetInstanceId(),
			Over: p.GetOver(),
		}
	}
	return out
}
