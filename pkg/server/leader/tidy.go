package leader

import (
	"context"

	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/groups"
)

// tidy periodically drops, until ctx ends, the parts' state of groups, instances and operators
// that are gone and whose end is not reported to them.
func (t *Term) tidy(ctx context.Context) {
	for retry.Wait(ctx, delivery.TidyInterval) == nil {
		t.files.Tidy(t.groups.Gone)
		t.roster.Tidy()
		t.transitions.Tidy(t.groups.Gone)
		t.shown.prune()
		groups.Reports(t.groups).ClearMended()
		groups.Reports(t.groups).ClearReturned()
		groups.Reports(t.groups).ReportNewlyMissing()
	}
}
