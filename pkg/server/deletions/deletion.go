package deletions

import (
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/problems"
)

const (
	// stuckAfter is how long a deletion may take before it is a problem.
	stuckAfter = 10 * time.Minute
	// remindAfter is the interval at which such a problem is reported again.
	remindAfter = 30 * time.Minute
)

// refusedDelete is the back-off of a delete that the provider refused or did not answer;
// idleDelete that of one that it accepted but that had no effect.
func refusedDelete() retry.Backoff {
	return retry.Backoff{First: 500 * time.Millisecond, Limit: 5 * time.Minute}
}
func idleDelete() retry.Backoff {
	return retry.Backoff{First: 30 * time.Second, Limit: 5 * time.Minute}
}

// deletion is the progress of one instance's deletion.
type deletion struct {
	since    time.Time
	asked    int    // requests
	accepted int    // of asked
	refused  int    // since the last accepted one
	hopeless bool   // a request was refused permanently
	words    string // the provider's error, of the last refusal
	problem  fleet.Problem
	remindAt time.Time // when to report the problem again; zero: not reported yet
}

// answered records the answer to a request, and returns when the next one is due.
func (d *deletion) answered(err error, now time.Time) (again time.Time) {
	if errors.Is(err, provider.ErrThrottled) {
		d.words = problems.Text(err)
		return now // paced.Provider delays it
	}
	d.asked++
	if err == nil {
		d.accepted++
		d.refused = 0
		return now.Add(idleDelete().Delay(d.accepted))
	}
	d.refused++
	d.words = problems.Text(err)
	d.hopeless = d.hopeless || Refused(err)
	return now.Add(refusedDelete().Delay(d.refused))
}

// Refused reports whether a deletion was refused permanently.
func Refused(err error) bool {
	return errors.Is(err, provider.ErrInvalid) || errors.Is(err, provider.ErrUnauthorized) || errors.Is(err, provider.ErrUnsupported)
}

// check returns the problem to report, or nil, and when to check again.
func (d *deletion) check(id fleet.InstanceID, key fleet.GroupKey, now time.Time) (told *fleet.Problem, again time.Time) {
	reason := problems.ReasonDeleteStuck
	switch late := d.since.Add(stuckAfter); {
	case d.hopeless:
		reason = problems.ReasonDeleteRefused
	case now.Before(late):
		return nil, late
	}
	if now.Before(d.remindAt) {
		return nil, d.remindAt
	}
	d.remindAt = now.Add(remindAfter)
	d.problem = fleet.Problem{At: now, Reason: reason, Message: d.text(id), Group: key, Instance: id, Lasts: true}
	p := d.problem
	return &p, d.remindAt
}

func (d *deletion) text(id fleet.InstanceID) string {
	said := "the last request was accepted, but had no effect"
	switch {
	case d.refused > 0 || d.asked == 0 && d.words != "":
		said = d.words
	case d.asked == 0:
		said = "no delete request was sent yet"
	}
	return fmt.Sprintf("instance %s has been in deletion since %s, and its machine may still exist (delete requests: %d): %s",
		id, d.since.UTC().Format(time.RFC3339), d.asked, said)
}
