package client_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// happened builds messages about events by their IDs; "." is the end of the snapshot.
func happened(text string) (all []*nstancev1.WatchEventsResponse) {
	for _, word := range strings.Fields(text) {
		m := &nstancev1.WatchEventsResponse{Type: upsert, Event: &nstancev1.Event{Id: word}}
		if word == "." {
			m = &nstancev1.WatchEventsResponse{Type: snapshot}
		}
		all = append(all, m)
	}
	return all
}

// TestWatchEvents: a watch goes on behind the last event that it got, also if an earlier one arrives
// late.
func TestWatchEvents(t *testing.T) {
	withFixture(t, func(f *fixture) {
		s := f.up("one", "10.0.0.1")
		away := rpc.Unavailable.Errorf("going")
		s.streams = []stream{
			{events: happened("1.9 1.10 ."), end: away}, {events: happened(". 2.1 1.11"), end: away}, {end: away}, {events: happened("2.2 .")},
		}
		ctx, cancel := context.WithCancel(f.t.Context())
		defer cancel()
		time.AfterFunc(time.Minute, cancel)
		var seen []string
		want := func(client.Shard) *nstancev1.WatchEventsRequest {
			return &nstancev1.WatchEventsRequest{Group: "web", AfterId: "1.8"}
		}
		err := f.client(nil).WatchEvents(ctx, []client.Shard{{ID: "one", Addrs: []string{s.addr}}}, want, func(e client.Event) error {
			switch {
			case e.Kind == client.Changed && e.Key == e.Happened.GetId() && e.Shard == "one":
				seen = append(seen, e.Key)
			default:
				seen = append(seen, word(e))
			}
			return nil
		})
		if got := strings.Join(seen, " "); err != nil || got != "1.9 1.10 . lost . 2.1 1.11 lost lost 2.2 ." {
			t.Errorf("saw %q, %v", got, err)
		}
		var from []string
		for _, req := range s.follows {
			from = append(from, req.GetAfterId())
			if req.GetGroup() != "web" {
				t.Errorf("asked for %v", req)
			}
		}
		if want := []string{"1.8", "1.10", "2.1", "2.1"}; !slices.Equal(from, want) {
			t.Errorf("asked to go on from %q, want %q", from, want)
		}
	})
}

// TestEvents: pages are fetched one after another.
func TestEvents(t *testing.T) {
	withFixture(t, func(f *fixture) {
		s := f.up("one", "10.0.0.1")
		s.events = []string{"1.1", "1.2", "2.1"}
		list := func(ctx context.Context, leader client.Service) (*nstancev1.ListEventsResponse, error) {
			return client.Events(ctx, leader, &nstancev1.ListEventsRequest{Group: "web"})
		}
		all, err := client.Call(f.t.Context(), f.client(nil), client.Shard{ID: "one", Addrs: []string{s.addr}}, list)
		var ids []string
		for _, e := range all.GetEvents() {
			ids = append(ids, e.GetId())
		}
		if err != nil || !slices.Equal(ids, s.events) || !all.GetEarlierMissing() {
			t.Errorf("listed %v, %v", all, err)
		}
	})
}
