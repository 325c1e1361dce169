package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// words are the text of an error as it is kept and shown: one line, not too long.
func words(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	return strings.ToValidUTF8(text[:min(len(text), fleet.MaxFailure)], "")
}

// note remembers how a step ended.
func (a *attempts) note(err error, now time.Time) {
	a.last, a.lastAt = "", time.Time{}
	if err != nil {
		a.last, a.lastAt = words(err), now
	}
}

// lastError is why the last step for an instance failed, and when; else why the
// instance came to nothing, as its record says, which outlives this term.
func (b *observation) lastError(r fleet.Instance) (string, time.Time) {
	if b.last == "" && r.Failure != "" && r.DeletedAt != nil {
		return r.Failure, *r.DeletedAt
	}
	return b.last, b.lastAt
}

// refusal is the error of a create as it is reported. The provider's last definite refusal is
// kept: a later one that only says that the attempt came before tells less.
func (o *observations) refusal(id fleet.InstanceID, err error) error {
	o.with(id, func(b *observation) {
		switch {
		case err == nil:
			b.refusedFor = nil
		case errors.Is(err, provider.ErrUsed) || errors.Is(err, provider.ErrSpent):
			err = cmp.Or(b.refusedFor, err)
		case provider.Definite(err):
			b.refusedFor = err
		}
	})
	return err
}

// failure has a record say why its instance came to nothing. The first word counts.
func failure(err error) func(*fleet.Instance) {
	return func(i *fleet.Instance) {
		if i.Failure == "" {
			i.Failure = words(err)
		}
	}
}

// failureOf is failure for an on-demand instance that a decision ends because it
// waited for too long without a machine that anybody has seen; otherwise it changes
// nothing. Where one was seen after all, on its way out, it takes the failure back.
func (t *term) failureOf(a plan.Action) func(*fleet.Instance) {
	b, settings := t.observed.get(a.ID), t.cfg.Groups.Settings()
	var err error
	switch {
	case a.Kind == plan.Tombstone && b.shown:
		return func(i *fleet.Instance) { i.Failure = "" }
	case a.Reason == plan.ReasonCreateTimeout:
		err = fmt.Errorf("no machine was made within %v (server.on_demand.create_timeout)", settings.CreateTimeout)
	case a.Reason == plan.ReasonRegistrationTimeout && !b.shown:
		err = fmt.Errorf("no machine is known to have been made, and none registered within %v (%s)", settings.RegistrationTimeout,
			"server.garbage_collection.registration_timeout")
	default:
		return nil
	}
	if b.last != "" {
		err = fmt.Errorf("%w: %s", err, b.last)
	}
	fail := failure(err)
	return func(i *fleet.Instance) {
		if i.OnDemand && i.Provider.ID == "" {
			fail(i)
		}
	}
}
