package history

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// Limits of a shard's history.
const (
	MaxEvents = 4096
	MaxBytes  = 2 << 20 // of all events as JSON
)

// Limits of one event. Longer texts are truncated.
const (
	maxMessage = 1024 // bytes
	maxText    = 256  // bytes, of each other text
	maxChanges = 16
)

// entry is an event with its size as JSON.
type entry struct {
	*fleet.Event
	size int
}

// ring is a bounded list of events, sorted by ID. Not safe for concurrent use.
type ring struct {
	entries []entry
	bytes   int
	held    map[string]int // bytes by tenant
	changes map[subject]*fleet.Event
}

func newRing() ring { return ring{held: map[string]int{}, changes: map[subject]*fleet.Event{}} }

// newEntry returns an event with bounded texts.
func newEntry(e fleet.Event) entry {
	e.Message = brief(e.Message, maxMessage)
	for _, text := range []*string{&e.Tenant, &e.Group, &e.Actor, &e.Reason, (*string)(&e.Instance), (*string)(&e.Replaces)} {
		*text = brief(*text, maxText)
	}
	changes := make([]fleet.Change, 0, min(len(e.Changes), maxChanges))
	for _, c := range e.Changes[:min(len(e.Changes), maxChanges)] {
		changes = append(changes, fleet.Change{Name: brief(c.Name, maxText), From: brief(c.From, maxText), To: brief(c.To, maxText)})
	}
	if e.Changes = changes; len(changes) == 0 {
		e.Changes = nil
	}
	body, _ := json.Marshal(e) // an event always encodes
	return entry{&e, len(body) + 1}
}

// add adds events with IDs that are not in the ring yet.
func (r *ring) add(added ...entry) {
	sorted := len(added) == 1 && (len(r.entries) == 0 || r.entries[len(r.entries)-1].ID.Compare(added[0].ID) < 0)
	r.entries = append(r.entries, added...)
	if !sorted {
		slices.SortFunc(r.entries, func(a, b entry) int { return a.ID.Compare(b.ID) })
	}
	for _, e := range added {
		r.bytes += e.size
		r.held[e.Tenant] += e.size
		r.index(e.Event)
	}
	for len(r.entries) > MaxEvents || r.bytes > MaxBytes {
		r.evict()
	}
}

// evict drops the oldest event of the tenant that has most.
func (r *ring) evict() {
	most, found := "", false
	for tenant, held := range r.held {
		if !found || cmp.Or(cmp.Compare(held, r.held[most]), cmp.Compare(most, tenant)) > 0 {
			most, found = tenant, true
		}
	}
	n := slices.IndexFunc(r.entries, func(e entry) bool { return e.Tenant == most })
	e := r.entries[n]
	if n == 0 {
		r.entries = r.entries[1:] // append makes a new array when this one is used up
	} else {
		r.entries = slices.Delete(r.entries, n, n+1)
	}
	r.bytes -= e.size
	if r.held[e.Tenant] -= e.size; r.held[e.Tenant] == 0 {
		delete(r.held, e.Tenant)
	}
	if of := subjectOf(e.Event); r.changes[of] == e.Event {
		delete(r.changes, of)
	}
}

// index remembers the last change of each subject.
func (r *ring) index(e *fleet.Event) {
	if e.Kind != fleet.EventChange {
		return
	}
	of := subjectOf(e)
	if last := r.changes[of]; last == nil || last.ID.Compare(e.ID) < 0 {
		r.changes[of] = e
	}
}

func brief(text string, most int) string {
	if len(text) <= most {
		return valid(text)
	}
	return valid(text[:most])
}
