package preview_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/preview"
)

func TestDeleted(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	every := func(n int, apart time.Duration) (all []fleet.Instance) {
		for n := range n {
			at := now.Add(-time.Duration(n) * apart)
			all = append(all, fleet.Instance{Phase: fleet.Deleted, DeletedAt: &at}, fleet.Instance{Phase: fleet.Running})
		}
		return append(all, fleet.Instance{Phase: fleet.Deleted}) // by hand
	}
	for name, test := range map[string]struct {
		all              []fleet.Instance
		soFar, retention time.Duration
		kept             int
		expected         int64
	}{
		"none":                          {nil, time.Hour, time.Hour, 0, 0},
		"as many as now":                {every(60, time.Minute), time.Hour, time.Hour, 61, 60},
		"a longer retention":            {every(60, time.Minute), time.Hour, 30 * day, 61, 60 * 24 * 30},
		"a shorter one":                 {every(60, time.Minute), time.Hour, time.Minute, 61, 1},
		"kept longer than they have to": {every(60, time.Minute), 10 * time.Minute, 10 * time.Minute, 61, 11},
		"the rate of the last day":      {every(48, time.Hour), 30 * day, 30 * day, 49, 25 * 30},
	} {
		d := preview.Deleted(test.all, now, test.soFar, test.retention)
		if d.Kept != test.kept || d.Expected != test.expected || (d.ExpectedBytes > 0) != (d.Expected > 0) {
			t.Errorf("%s: %+v, want %d and %d", name, d, test.kept, test.expected)
		}
	}
}
