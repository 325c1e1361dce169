package reconcile

import (
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

// The reasons of problems with instances that are being deleted.
const (
	ReasonDeleteRefused = "DeleteRefused" // the provider refused for good
	ReasonDeleteStuck   = "DeleteStuck"   // the machine is there still, long after its deletion began
)

const (
	// stuckAfter is how long a deletion may take before it is a problem.
	stuckAfter = 10 * time.Minute
	// remindAfter is how often such a problem is told again.
	remindAfter = 30 * time.Minute
)

// refusedDelete is for a delete that the provider refused, or did not answer;
// idleDelete for one that it accepted and that had no effect.
func refusedDelete() retry.Backoff {
	return retry.Backoff{First: 500 * time.Millisecond, Limit: 5 * time.Minute}
}
func idleDelete() retry.Backoff {
	return retry.Backoff{First: 30 * time.Second, Limit: 5 * time.Minute}
}

// deletion is how it goes for one instance.
type deletion struct {
	since    time.Time
	asked    int
	accepted int    // of those
	refused  int    // since one was accepted
	hopeless bool   // one was refused for good
	words    string // the provider's, of the last refusal
	problem  fleet.Problem
	remindAt time.Time // when the problem is told; zero: when there is one
}

// answered takes over the answer to a request, and returns when the next is due.
func (d *deletion) answered(err error, now time.Time) (again time.Time) {
	if errors.Is(err, provider.ErrThrottled) {
		d.words = words(err)
		return now // when its turn comes
	}
	d.asked++
	if err == nil {
		d.accepted++
		d.refused = 0
		return now.Add(idleDelete().Delay(d.accepted))
	}
	d.refused++
	d.words = words(err)
	d.hopeless = d.hopeless || refusedForGood(err)
	return now.Add(refusedDelete().Delay(d.refused))
}

func refusedForGood(err error) bool {
	return errors.Is(err, provider.ErrInvalid) || errors.Is(err, provider.ErrUnauthorized) || errors.Is(err, provider.ErrUnsupported)
}

// look says what is to be told of a deletion, and when to look again.
func (d *deletion) look(id fleet.InstanceID, key fleet.GroupKey, now time.Time) (told *fleet.Problem, again time.Time) {
	reason := ReasonDeleteStuck
	switch late := d.since.Add(stuckAfter); {
	case d.hopeless:
		reason = ReasonDeleteRefused
	case now.Before(late):
		return nil, late
	}
	if now.Before(d.remindAt) {
		return nil, d.remindAt
	}
	d.remindAt = now.Add(remindAfter)
	d.problem = fleet.Problem{At: now, Reason: reason, Message: d.text(id), Group: key, Instance: id}
	p := d.problem
	return &p, d.remindAt
}

func (d *deletion) text(id fleet.InstanceID) string {
	said := "the last request was accepted, and had no effect"
	switch {
	case d.refused > 0 || d.asked == 0 && d.words != "":
		said = d.words
	case d.asked == 0:
		said = "the provider was not asked yet"
	}
	return fmt.Sprintf("instance %s is being deleted since %s, and its machine may be there still: asked %d times: %s",
		id, d.since.UTC().Format(time.RFC3339), d.asked, said)
}
