package fleet

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// EventKind says what an Event tells of.
type EventKind string

// The kinds of events.
const (
	EventChange    EventKind = "change"         // a caller's change was accepted
	EventCreate    EventKind = "create"         // a new instance was recorded, and is being created
	EventReplace   EventKind = "replace"        // the same, for an instance that was lost
	EventDrain     EventKind = "drain"          // an instance begins to drain
	EventDelete    EventKind = "delete"         // an instance is being deleted
	EventDeleted   EventKind = "deleted"        // an instance's machine is gone, or was never made
	EventFailing   EventKind = "failing"        // the creates of a group begin to fail, or fail for another reason
	EventRecovered EventKind = "recovered"      // they no longer fail
	EventAbortOver EventKind = "abort-over"     // a group no longer refuses the definition of an aborted rollout
	EventOrphan    EventKind = "orphan-removed" // a machine without a record was deleted
	EventHeld      EventKind = "held"           // the shard creates and deletes nothing
	EventResumed   EventKind = "resumed"        // it acts again
	EventTakeover  EventKind = "takeover"       // a leader took over
)

// Event is one decision of a shard, or one accepted change, with its reason. It is stored, and
// does not change.
type Event struct {
	ID   EventID   `json:"id"`
	At   time.Time `json:"at"`
	Kind EventKind `json:"kind"`
	// Tenant is the owner; empty if the event concerns the shard as a whole.
	Tenant   string     `json:"tenant,omitempty"`
	Group    string     `json:"group,omitempty"`
	Instance InstanceID `json:"instance,omitempty"`
	// Replaces is the lost instance that a new one replaces.
	Replaces InstanceID `json:"replaces,omitempty"`
	// Actor is the SPIFFE ID of the caller of a change, or the rule of a decision, such as
	// rule:scale.
	Actor   string   `json:"actor"`
	Reason  string   `json:"reason"`  // a constant
	Message string   `json:"message"` // a sentence for people
	Changes []Change `json:"changes,omitempty"`
}

// Change is a value that a change replaced. From is empty for new values.
type Change struct {
	Name string `json:"name"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// GroupKey returns the key of the event's group; zero if it concerns none.
func (e *Event) GroupKey() GroupKey {
	if e.Group == "" {
		return GroupKey{}
	}
	return GroupKey{Tenant: e.Tenant, Name: e.Group}
}

// Concerns reports whether an instance is the event's, or the one that it replaces.
func (e *Event) Concerns(id InstanceID) bool { return e.Instance == id || e.Replaces == id }

// EventID orders the events of a shard: by the epoch of the leader, and by its number within the
// term, from 1. The zero ID is before all others.
type EventID struct{ Epoch, Number uint64 }

// Compare orders by epoch and number.
func (id EventID) Compare(o EventID) int {
	return cmp.Or(cmp.Compare(id.Epoch, o.Epoch), cmp.Compare(id.Number, o.Number))
}

// String returns the ID as text, such as 7.42.
func (id EventID) String() string {
	return strconv.FormatUint(id.Epoch, 10) + "." + strconv.FormatUint(id.Number, 10)
}

// ParseEventID parses the output of String, and rejects everything else.
func ParseEventID(text string) (EventID, error) {
	before, after, _ := strings.Cut(text, ".")
	epoch, err1 := strconv.ParseUint(before, 10, 64)
	number, err2 := strconv.ParseUint(after, 10, 64)
	id := EventID{epoch, number}
	if err1 != nil || err2 != nil || number == 0 || id.String() != text {
		return EventID{}, fmt.Errorf("%.80q is not the id of an event: want the epoch and the number, such as 7.42", text)
	}
	return id, nil
}

// MarshalText implements encoding.TextMarshaler.
func (id EventID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *EventID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseEventID(string(text))
	return err
}
