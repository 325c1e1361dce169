package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// subject is what a change is about: an instance, a group, or with neither the shard's config.
type subject struct {
	tenant, group string
	instance      fleet.InstanceID
}

func subjectOf(e *fleet.Event) subject {
	if e.Instance != "" {
		return subject{tenant: e.Tenant, instance: e.Instance}
	}
	return subject{tenant: e.Tenant, group: e.Group}
}

// recent is how old the change of a group's size may be to explain a create.
const recent = time.Hour

// cause returns the change that a decision carries out; nil if none is known.
func (r *ring) cause(e *fleet.Event) *fleet.Event {
	group, config := r.changes[subject{tenant: e.Tenant, group: e.Group}], r.changes[subject{}]
	switch reason, _, _ := strings.Cut(e.Reason, ":"); reason {
	case plan.ReasonScaleUp:
		if resized(group) && e.At.Sub(group.At) < recent {
			return group
		}
	case plan.ReasonScaleDown, plan.ReasonLeaving:
		if resized(group) {
			return group
		}
	case plan.ReasonGroupRemoved:
		return group
	case plan.ReasonReplaceAsked, plan.ReasonDeleteAsked:
		return r.changes[subject{tenant: e.Tenant, instance: e.Instance}]
	case plan.ReasonDrift:
		if group != nil && (config == nil || group.ID.Compare(config.ID) > 0) {
			return group
		}
		return config
	}
	return nil
}

func resized(e *fleet.Event) bool {
	return e != nil && slices.ContainsFunc(e.Changes, func(c fleet.Change) bool { return c.Name == "size" })
}

// explained adds the cause of a decision to its message. Callers of another tenant are not named:
// a change of the shard's config concerns all tenants.
func (r *ring) explained(e fleet.Event) fleet.Event {
	c := r.cause(&e)
	if c == nil || e.Kind == fleet.EventChange || e.Kind == fleet.EventDeleted {
		return e
	}
	by := ""
	if c.Tenant == e.Tenant || e.Tenant == fleet.DefaultTenant {
		by = " by " + c.Actor
	}
	e.Message += fmt.Sprintf("; %s at %s%s", c.Message, c.At.UTC().Format(time.RFC3339), by)
	return e
}

// repeated reports whether a change is the same as the last one of its subject, as that of a
// caller that repeats a call until it has an answer.
func (r *ring) repeated(e *fleet.Event) bool {
	last := r.changes[subjectOf(e)]
	return e.Kind == fleet.EventChange && last != nil && last.Actor == e.Actor && last.Reason == e.Reason && last.Message == e.Message &&
		slices.Equal(last.Changes, e.Changes)
}
