package preview_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/server/preview"
)

func TestDeleted(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	every := func(n int, apart time.Duration) (all []time.Time) {
		for n := range n {
			all = append(all, now.Add(-time.Duration(n)*apart))
		}
		return append(all, time.Time{}) // by hand
	}
	for name, test := range map[string]struct {
		at               []time.Time
		soFar, retention time.Duration
		kept             int
		window           time.Duration
		expected         int64
	}{
		"none":                          {nil, time.Hour, time.Hour, 0, time.Hour, 0},
		"as many as now":                {every(60, time.Minute), time.Hour, time.Hour, 61, time.Hour, 60},
		"a longer retention":            {every(60, time.Minute), time.Hour, 30 * day, 61, time.Hour, 60 * 24 * 30},
		"a longer one since a moment":   {every(60, time.Minute), 30 * day, 30 * day, 61, time.Hour, 60 * 24 * 30},
		"a shorter one":                 {every(60, time.Minute), time.Hour, time.Minute, 61, time.Hour, 1},
		"kept longer than they have to": {every(60, time.Minute), 10 * time.Minute, 10 * time.Minute, 61, 53 * time.Minute, 10},
		"a few that failed early":       {append(every(1800, time.Second), now.Add(-day+1)), time.Hour / 2, day, 1802, time.Hour / 2, 1800 * 48},
		"kept for minutes":              {every(10, time.Minute), 10 * time.Minute, time.Hour, 11, 10 * time.Minute, 60},
		"a burst":                       {every(600, time.Second), day, day, 601, time.Hour, 600 * 24},
		"the rate of the last day":      {every(48, time.Hour), 30 * day, 30 * day, 49, day, 25 * 30},
	} {
		d := preview.Deleted(test.at, now, test.soFar, test.retention)
		if d.Kept != test.kept || d.Window != test.window || d.Expected != test.expected || (d.ExpectedBytes > 0) != (d.Expected > 0) {
			t.Errorf("%s: %+v, want %d, %v and %d", name, d, test.kept, test.window, test.expected)
		}
	}
}
