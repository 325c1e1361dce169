package fleet_test

import (
	"encoding/json"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
)

// TestEventID: the text of an ID is parsed back, and nothing else is.
func TestEventID(t *testing.T) {
	for _, id := range []fleet.EventID{{0, 1}, {7, 42}, {1 << 63, 1<<64 - 1}} {
		if got, err := fleet.ParseEventID(id.String()); err != nil || got != id {
			t.Errorf("%v: %v, %v", id, got, err)
		}
	}
	for _, text := range []string{"", ".", "7", "7.", ".7", "7.0", "07.1", "7.01", "+7.1", "7.1.1", "7.-1", "18446744073709551616.1"} {
		if got, err := fleet.ParseEventID(text); err == nil {
			t.Errorf("%q is parsed as %v", text, got)
		}
	}
	if a, b := (fleet.EventID{Epoch: 7, Number: 9}), (fleet.EventID{Epoch: 7, Number: 10}); a.Compare(b) >= 0 {
		t.Error("numbers are not compared as numbers")
	}
	if a, b := (fleet.EventID{Epoch: 7, Number: 9}), (fleet.EventID{Epoch: 8, Number: 1}); a.Compare(b) >= 0 {
		t.Error("the epoch does not come first")
	}
}

// FuzzEventID: a text is refused, or is that of its ID.
func FuzzEventID(f *testing.F) {
	f.Add("7.42")
	f.Add("07.42")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := fleet.ParseEventID(text)
		if err == nil && id.String() != text {
			t.Errorf("%q is parsed as %s", text, id)
		}
	})
}

// TestEventConcerns: an event is found by the instance that it is about, and by the one replaced.
func TestEventConcerns(t *testing.T) {
	e := fleet.Event{Tenant: "prod", Group: "web", Instance: "new", Replaces: "old"}
	if !e.Concerns("new") || !e.Concerns("old") || e.Concerns("other") || e.GroupKey() != (fleet.GroupKey{Tenant: "prod", Name: "web"}) {
		t.Errorf("%+v", e)
	}
	body, err := json.Marshal(fleet.Event{ID: fleet.EventID{Epoch: 1, Number: 2}})
	var back fleet.Event
	if err != nil || json.Unmarshal(body, &back) != nil || back.ID != (fleet.EventID{Epoch: 1, Number: 2}) {
		t.Errorf("%s, %v", body, err)
	}
}
