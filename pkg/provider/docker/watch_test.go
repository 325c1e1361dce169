package docker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
)

// TestWatchGoesOn: what happens while nobody listens is told by the next Watch, from the
// engine's events if it remembers, and from what has stopped in any case.
func TestWatchGoesOn(t *testing.T) {
	spec := newSpec(t, wireScope(), nil)
	running, dead := strings.Repeat("a", 64), strings.Repeat("b", 64)
	encode := func(v any) string {
		t.Helper()
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	die := func(nano int64) string {
		attributes := maps.Clone(spec.Tags)
		attributes["exitCode"] = "1"
		return encode(map[string]any{
			"Type": "container", "Action": "die", "Actor": map[string]any{"ID": running, "Attributes": attributes}, "timeNano": nano,
		})
	}
	const now = 1_800_000_000_500_000_000
	p, w := openWire(t, map[string]answer{
		"GET info": {200, `{"SystemTime":"2027-01-15T08:00:00.5Z"}`},
		"GET json": {200, encode([]map[string]any{
			{"Id": running, "State": "running", "Labels": spec.Tags},
			{"Id": dead, "State": "exited", "Status": "Exited (255) 1 second ago", "Labels": spec.Tags},
		})},
		"GET events": {200, die(now + 7)},
	})
	watch := func(want string) {
		t.Helper()
		var told []string
		err := p.Watch(t.Context(), func(e provider.Event) {
			told = append(told, fmt.Sprintf("%.2s %s: %s", e.VM.ProviderID, e.VM.State, e.VM.Reason))
		})
		if err == nil || provider.Definite(err) || !strings.Contains(err.Error(), "watch containers") {
			t.Errorf("the stream broke off: %v", err)
		}
		if all := []string{"bb stopped: exit code 255", "aa stopped: exit code 1"}; !slices.Equal(told, all) {
			t.Errorf("told %q, want %q", told, all)
		}
		query, err := url.ParseQuery(w.bodies["GET events"])
		if err != nil || query.Get("since") != want {
			t.Errorf("events since %s, %v; want %s", query.Get("since"), err, want)
		}
	}
	answers := func(call, message string) {
		w.mu.Lock()
		w.answers[call] = answer{200, message}
		w.mu.Unlock()
	}
	watch("1799999990.500000000") // the first one: from a little before the engine's present on
	answers("GET info", `{"SystemTime":"2027-01-15T09:00:00Z"}`)
	watch("1800000000.500000007") // where the first one broke off
	answers("GET info", `{"SystemTime":"2027-01-15T07:00:00Z"}`)
	watch("1799996390.000000000") // the engine's clock was set back
}

// TestWatchCantBegin: a stream that does not start, or whose list fails, says why.
func TestWatchCantBegin(t *testing.T) {
	info := answer{200, `{"SystemTime":"2027-01-15T08:00:00Z"}`}
	for name, c := range map[string]struct {
		answers map[string]answer
		want    error // nil: temporary
	}{
		"forbidden":       {map[string]answer{"GET info": {403, "no"}}, provider.ErrUnauthorized},
		"no time":         {map[string]answer{"GET info": {200, "{}"}}, nil},
		"no list":         {map[string]answer{"GET info": info, "GET events": {200, ""}, "GET json": {500, "no"}}, nil},
		"no events":       {map[string]answer{"GET info": info, "GET events": {500, "no"}, "GET json": {200, "[]"}}, nil},
		"throttled lists": {map[string]answer{"GET info": info, "GET events": {200, ""}, "GET json": {429, "no"}}, provider.ErrThrottled},
	} {
		p, _ := openWire(t, c.answers)
		err := p.Watch(t.Context(), func(provider.Event) {})
		if err == nil || !strings.Contains(err.Error(), "watch containers") || provider.Definite(err) != (c.want != nil) ||
			c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
