package leader

import (
	"context"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/delivery"
)

// tidy has the parts of the term forget, again and again until ctx ends, what they
// remember of groups, instances and operators that are gone and that they are not told
// of.
func (t *Term) tidy(ctx context.Context) {
	for retry.Wait(ctx, delivery.TidyInterval) == nil {
		t.files.Tidy(t.groups.gone)
		t.roster.Tidy()
		t.problems.prune()
		held := holding{t.groups, t.records}
		t.problems.returned(held.missing)
		news := func(key fleet.GroupKey) bool { return !t.problems.stands(key, ReasonRecordMissing) }
		for _, p := range held.problems(t.cfg.Now(), news) {
			t.problems.report(p)
		}
	}
}
