package deletions

import (
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/problems"
)

func TestDeleteIsRepeatedMoreAndMoreRarely(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for name, c := range map[string]struct {
		before deletion
		err    error
		want   time.Duration
		after  deletion
	}{
		"refused": {
			err: fake.ErrLost, want: 500 * time.Millisecond,
			after: deletion{asked: 1, refused: 1, words: fake.ErrLost.Error()},
		},
		"refused again": {
			before: deletion{asked: 3, refused: 3}, err: fake.ErrLost, want: 4 * time.Second,
			after: deletion{asked: 4, refused: 4, words: fake.ErrLost.Error()},
		},
		"refused for long": {
			before: deletion{asked: 30, refused: 30}, err: fake.ErrLost, want: 5 * time.Minute,
			after: deletion{asked: 31, refused: 31, words: fake.ErrLost.Error()},
		},
		"refused for good": {
			err: provider.ErrUnauthorized, want: 500 * time.Millisecond,
			after: deletion{asked: 1, refused: 1, hopeless: true, words: provider.ErrUnauthorized.Error()},
		},
		"accepted":          {want: 30 * time.Second, after: deletion{asked: 1, accepted: 1}},
		"accepted again":    {before: deletion{asked: 1, accepted: 1}, want: time.Minute, after: deletion{asked: 2, accepted: 2}},
		"accepted for long": {before: deletion{asked: 9, accepted: 9}, want: 5 * time.Minute, after: deletion{asked: 10, accepted: 10}},
		"accepted after refusals": {
			before: deletion{asked: 9, refused: 9, hopeless: true, words: "no"}, want: 30 * time.Second,
			after: deletion{asked: 10, accepted: 1, hopeless: true, words: "no"},
		},
		"throttled, which is none": {
			before: deletion{asked: 1, refused: 1, words: "no"}, err: provider.ErrThrottled,
			after: deletion{asked: 1, refused: 1, words: provider.ErrThrottled.Error()},
		},
	} {
		got := c.before
		if again := got.answered(c.err, now).Sub(now); again != c.want || got != c.after {
			t.Errorf("%s: again after %s, %+v, want %s, %+v", name, again, got, c.want, c.after)
		}
	}
}

func TestDeletionBecomesAProblem(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		deletion deletion
		reason   string // of the reported problem; empty: none
		says     string
		again    time.Duration
	}{
		"for less than ten minutes": {deletion: deletion{since: ago(stuckAfter - 1), asked: 3, refused: 3}, again: 1},
		"for ten minutes": {
			deletion: deletion{since: ago(stuckAfter), asked: 3, refused: 3, words: "no way"},
			reason:   problems.ReasonDeleteStuck, says: "requests: 3): no way", again: remindAfter,
		},
		"without effect": {
			deletion: deletion{since: ago(stuckAfter), asked: 3, accepted: 3, words: "no way"},
			reason:   problems.ReasonDeleteStuck, says: "accepted, but had no effect", again: remindAfter,
		},
		"never asked": {
			deletion: deletion{since: ago(stuckAfter)},
			reason:   problems.ReasonDeleteStuck, says: "no delete request was sent", again: remindAfter,
		},
		"never asked, throttled": {
			deletion: deletion{since: ago(stuckAfter), words: "too many"},
			reason:   problems.ReasonDeleteStuck, says: "requests: 0): too many", again: remindAfter,
		},
		"refused for good": {
			deletion: deletion{since: now, asked: 1, refused: 1, hopeless: true, words: "no"},
			reason:   problems.ReasonDeleteRefused, says: "requests: 1): no", again: remindAfter,
		},
		"told of":          {deletion: deletion{since: ago(time.Hour), remindAt: now.Add(time.Minute)}, again: time.Minute},
		"told of long ago": {deletion: deletion{since: ago(time.Hour), remindAt: now}, reason: problems.ReasonDeleteStuck, again: remindAfter},
	} {
		p, again := c.deletion.check("i", fleet.GroupKey{Name: "web"}, now)
		if p == nil {
			p = &fleet.Problem{}
		}
		if p.Reason != c.reason || !strings.Contains(p.Message, c.says) || again.Sub(now) != c.again ||
			c.reason != "" && *p != c.deletion.problem {
			t.Errorf("%s: %+v, again after %s", name, p, again.Sub(now))
		}
	}
}
