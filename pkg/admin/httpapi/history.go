package httpapi

import (
	"slices"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
)

// maxPast is the number of each shard's events that are part of the state.
const maxPast = 200

// history bounds the events of the shards: a shard that begins to be followed sends all that it
// has kept, and goes on for as long as the API runs. It is not safe for concurrent use.
type history struct {
	held  map[string][]admin.Event // by shard: the last ones of a list that has not ended yet
	known map[string][]happened    // by shard: those in the state, oldest first
}

// happened is one event of a shard in the state.
type happened struct {
	id  fleet.EventID
	key string
}

func newHistory() history {
	return history{held: map[string][]admin.Event{}, known: map[string][]happened{}}
}

// due returns what the streams learn now that e came: e; nothing while the first list of a shard's
// events goes on; at its end the last of these, and then e.
func (h history) due(e admin.Event) []admin.Event {
	_, begun := h.known[e.Shard]
	switch {
	case e.Kind == admin.EventHappened && !begun:
		held := append(h.held[e.Shard], e)
		h.held[e.Shard] = held[max(0, len(held)-maxPast):]
		return nil
	case e.Kind == admin.EventSnapshot && e.Of == client.WatchEvents && !begun:
		held := h.held[e.Shard]
		delete(h.held, e.Shard)
		h.known[e.Shard] = nil
		return append(held, e)
	default:
		return []admin.Event{e}
	}
}

// add puts an event into the state, and returns the key of the one that leaves it, or "".
func (h history) add(shard, id, key string) string {
	at, err := fleet.ParseEventID(id)
	if err != nil {
		at = fleet.EventID{} // of a later version: it is the first to go
	}
	known := h.known[shard]
	n, _ := slices.BinarySearchFunc(known, at, func(x happened, at fleet.EventID) int { return x.id.Compare(at) })
	if n < len(known) && known[n].key == key {
		return ""
	}
	known = slices.Insert(known, n, happened{at, key})
	gone := ""
	if len(known) > maxPast {
		gone = known[0].key
		known = slices.Delete(known, 0, 1)
	}
	h.known[shard] = known
	return gone
}
