package docker_test

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
)

// TestWatchResumes: events between two watches are reported by the next Watch, from the
// engine's events if it still has them, and from the list of stopped containers in any case.
func TestWatchResumes(t *testing.T) {
	spec := newSpec(t, testScope(), nil)
	running, dead := strings.Repeat("a", 64), strings.Repeat("b", 64)
	die := func(nano int64) string {
		attributes := maps.Clone(spec.Tags)
		attributes["exitCode"] = "1"
		return encode(t, map[string]any{
			"Type": "container", "Action": "die", "Actor": map[string]any{"ID": running, "Attributes": attributes}, "timeNano": nano,
		})
	}
	const now = 1_800_000_000_500_000_000
	p, w := openFake(t, map[string]response{
		"GET info": {200, `{"SystemTime":"2027-01-15T08:00:00.5Z"}`},
		"GET json": {200, encode(t, []map[string]any{
			{"Id": running, "State": "running", "Labels": spec.Tags},
			{"Id": dead, "State": "exited", "Status": "Exited (255) 1 second ago", "Labels": spec.Tags},
		})},
		"GET events": {200, die(now + 7)},
	})
	watch := func(want string) {
		t.Helper()
		var events []string
		err := p.Watch(t.Context(), func(e provider.Event) {
			events = append(events, fmt.Sprintf("%.2s %s: %s", e.VM.ProviderID, e.VM.State, e.VM.Reason))
		})
		if err == nil || provider.Definite(err) || !strings.Contains(err.Error(), "watch containers") {
			t.Errorf("the end of the stream: %v", err)
		}
		if all := []string{"bb stopped: exit code 255", "aa stopped: exit code 1"}; !slices.Equal(events, all) {
			t.Errorf("events %q, want %q", events, all)
		}
		query, err := url.ParseQuery(w.bodies["GET events"])
		if err != nil || query.Get("since") != want {
			t.Errorf("events since %s, %v; want %s", query.Get("since"), err, want)
		}
	}
	respond := func(call, message string) {
		w.mu.Lock()
		w.responses[call] = response{200, message}
		w.mu.Unlock()
	}
	watch("1799999990.500000000") // the first watch starts a little before the engine's current time
	respond("GET info", `{"SystemTime":"2027-01-15T09:00:00Z"}`)
	watch("1800000000.500000007") // after the last event of the first watch
	respond("GET info", `{"SystemTime":"2027-01-15T07:00:00Z"}`)
	watch("1799996390.000000000") // the engine's clock was set back
}

// TestWatchErrors: the error says why the stream did not start or its list failed.
func TestWatchErrors(t *testing.T) {
	info := response{200, `{"SystemTime":"2027-01-15T08:00:00Z"}`}
	for name, c := range map[string]struct {
		responses map[string]response
		want      error // nil: temporary
	}{
		"forbidden":       {map[string]response{"GET info": {403, "no"}}, provider.ErrUnauthorized},
		"no time":         {map[string]response{"GET info": {200, "{}"}}, nil},
		"no list":         {map[string]response{"GET info": info, "GET events": {200, ""}, "GET json": {500, "no"}}, nil},
		"no events":       {map[string]response{"GET info": info, "GET events": {500, "no"}, "GET json": {200, "[]"}}, nil},
		"throttled lists": {map[string]response{"GET info": info, "GET events": {200, ""}, "GET json": {429, "no"}}, provider.ErrThrottled},
	} {
		p, _ := openFake(t, c.responses)
		err := p.Watch(t.Context(), func(provider.Event) {})
		if err == nil || !strings.Contains(err.Error(), "watch containers") || provider.Definite(err) != (c.want != nil) ||
			c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
