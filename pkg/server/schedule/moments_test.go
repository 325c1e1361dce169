package schedule_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "github.com/nstance/nstance/pkg/rapidseed"
	"github.com/nstance/nstance/pkg/server/schedule"
)

// TestMoments: a queue is what a map of the earliest times is.
func TestMoments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m schedule.Moments[int]
		want, zero := map[int]time.Time{}, time.Unix(1_700_000_000, 0)
		at := rapid.Custom(func(t *rapid.T) time.Time {
			return zero.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "second")) * time.Second)
		})
		key := rapid.IntRange(0, 9)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k, at := key.Draw(t, "key"), at.Draw(t, "at")
				m.Add(k, at)
				if old, there := want[k]; !there || at.Before(old) {
					want[k] = at
				}
			},
			"delete": func(t *rapid.T) {
				k := key.Draw(t, "key")
				m.Delete(k)
				delete(want, k)
			},
			"take": func(t *rapid.T) {
				at := at.Draw(t, "at")
				due := m.Take(at)
				if !slices.IsSortedFunc(due, func(a, b int) int { return want[a].Compare(want[b]) }) {
					t.Errorf("%v are not sorted by %v", due, want)
				}
				for _, k := range due {
					if is, there := want[k]; !there || is.After(at) {
						t.Errorf("%d is due at %v, want %v", k, at, is)
					}
					delete(want, k)
				}
			},
			"": func(t *rapid.T) {
				var next time.Time
				for _, at := range want {
					if next.IsZero() || at.Before(next) {
						next = at
					}
				}
				if m.Len() != len(want) || !m.Next().Equal(next) {
					t.Errorf("%d keys, the next at %v; want %d and %v", m.Len(), m.Next(), len(want), next)
				}
			},
		})
	})
}
