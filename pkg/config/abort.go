package config

import (
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
)

// This file takes a group back to what its machines were built from before a rollout. Neither the config
// nor what the group's record asks for changes: the group refuses what they lead to, by its infra hash.
// Vars and files are those that are asked for, as always.

// Reasons not to abort a rollout.
var (
	// ErrNoRollout: no instance is outdated.
	ErrNoRollout = errors.New("there is no rollout to abort: no instance has a definition other than the present one")
	// ErrNoDefinition: what the outdated instances were built from is not known.
	ErrNoDefinition = errors.New("the definition that most of its outdated instances have is not known any more: " +
		"ask for it in the config or by a change of the group, or pause the rollout")
)

// Aborted is a rollout that was aborted.
type Aborted struct {
	// Refused is the infra hash of what the group does not become; empty once its rollout was retried.
	Refused string     `json:"refused,omitempty"`
	Instead Definition `json:"instead"` // what the group is while that is asked for
}

// Replaced is what the last change of a group's record replaced.
type Replaced struct {
	Template     *string `json:"template,omitempty"`
	InstanceType *string `json:"instance_type,omitempty"`
	SubnetPool   *string `json:"subnet_pool,omitempty"`
}

// Rollout is what is known of a group's instances and of earlier definitions.
type Rollout struct {
	Built  map[string]int // the number of working instances by infra hash
	Before *Shard         // the config that was accepted before the present one; nil: not known
}

// most returns the highest number of outdated instances that were built from one definition.
func (r Rollout) most(now fleet.Hashes) (most int) {
	for infra, n := range r.Built {
		if (fleet.Hashes{Infra: infra}).Outdated(now) {
			most = max(most, n)
		}
	}
	return most
}

// AbortRollout makes a group refuse its present definition, in favor of the one that most of its
// outdated instances were built from. The error wraps ErrNoGroup, ErrRemoved, ErrUnknownGroup,
// ErrNoRollout or ErrNoDefinition, or is a Problems if the group can't have that definition any more.
// Idempotent.
func AbortRollout(s *Shard, key fleet.GroupKey, was GroupRecord, r Rollout, checks Checks) (GroupRecord, error) {
	fail := func(err error) (GroupRecord, error) {
		return GroupRecord{}, fmt.Errorf("abort the rollout of group %s: %w", key, err)
	}
	entry := was.entry()
	if err := checkAborts(s, key, was); err != nil {
		return fail(err)
	}
	now, wrong, _ := s.resolve(key, entry)
	switch {
	case now.Asked != nil:
		return was, nil
	case len(wrong) > 0:
		return fail(wrong)
	}
	before, err := definitionBefore(s, now, entry, r)
	if err != nil {
		return fail(err)
	}
	entry.Aborted = &Aborted{now.Hashes.Infra, before}
	wrong = append(checkInstead(s, key, before), entry.check()...)
	if after, _, _ := s.resolve(key, entry); len(wrong) == 0 {
		var render error
		wrong, render = checks.refused(s, after)
		if _, present := checks.refused(s, now); render != nil && present == nil {
			return fail(fmt.Errorf("the definition before: %w", render))
		}
	}
	if len(wrong) > 0 {
		return fail(wrong)
	}
	return was.revised(entry).sized(s, key), nil
}

// RetryRollout lets a group have the definition that it refuses. The error wraps ErrNoGroup, ErrRemoved
// or ErrUnknownGroup. Idempotent.
func RetryRollout(s *Shard, key fleet.GroupKey, was GroupRecord) (GroupRecord, error) {
	if err := checkAborts(s, key, was); err != nil {
		return GroupRecord{}, fmt.Errorf("retry the rollout of group %s: %w", key, err)
	}
	if !was.exists || was.Aborted == nil {
		return was, nil
	}
	e := was.Entry
	e.Aborted = &Aborted{Instead: e.Aborted.Instead} // for another abort
	return was.revised(e).sized(s, key), nil
}

// ForgetAbort returns the record without the abort of a definition with an infra hash.
func (r GroupRecord) ForgetAbort(refused string) GroupRecord {
	if !r.exists || r.Aborted == nil || r.Aborted.Refused != refused {
		return r
	}
	e := r.Entry
	e.Aborted = nil
	return r.with(e)
}

// checkAborts checks that a group has rollouts.
func checkAborts(s *Shard, key fleet.GroupKey, was GroupRecord) error {
	_, isStatic := s.Static(key)
	switch {
	case !isStatic && !was.exists:
		return ErrNoGroup
	case was.Undefined:
		return ErrUnknownGroup
	case was.Removed:
		return ErrRemoved
	}
	return nil
}

// definitionBefore returns the definition that most of the outdated instances were built from.
func definitionBefore(s *Shard, now fleet.Group, e Entry, r Rollout) (Definition, error) {
	most := r.most(now.Hashes)
	if most == 0 {
		return Definition{}, ErrNoRollout
	}
	if e.Aborted != nil {
		g := now
		e.Aborted.Instead.apply(&g)
		wrong := hash(s, &g)
		if len(wrong) == 0 && r.Built[g.Hashes.Infra] == most && g.Hashes.Outdated(now.Hashes) {
			return e.Aborted.Instead, nil
		}
	}
	e.Aborted = nil
	for _, entry := range []Entry{e, e.replaced()} {
		for _, shard := range []*Shard{s, r.Before} {
			if shard == nil {
				continue
			}
			g, wrong, _ := shard.resolve(now.Key, entry)
			if len(wrong) == 0 && r.Built[g.Hashes.Infra] == most && g.Hashes.Outdated(now.Hashes) {
				return definitionOf(shard, g), nil
			}
		}
	}
	return Definition{}, ErrNoDefinition
}

// BuildsAlike reports whether two configs ask for the same machines in all groups, apart from how many.
func BuildsAlike(a, b *Shard, records GroupRecords) bool {
	before, _ := a.Resolve(records)
	after, _ := b.Resolve(records)
	for key, g := range before {
		if is, ok := after[key]; !ok || g.AskedFor().Infra != is.AskedFor().Infra {
			return false
		}
	}
	return len(before) == len(after)
}

// replaced returns the entry as it was before its last change of the definition.
func (e Entry) replaced() Entry {
	if r := e.Replaced; r != nil {
		e.Template, e.InstanceType, e.SubnetPool = r.Template, r.InstanceType, r.SubnetPool
	}
	return e
}

// replacing returns the entry after a change of the definition, with what it replaced.
func replacing(s *Shard, key fleet.GroupKey, before, after Entry) Entry {
	after.Replaced = nil
	if _, isStatic := s.Static(key); (isStatic || before.Template != nil) && !before.Removed {
		after.Replaced = &Replaced{before.Template, before.InstanceType, before.SubnetPool}
	}
	return after
}

// narrowed returns what a static group's record could change.
func (r *Replaced) narrowed() *Replaced {
	if r == nil {
		return nil
	}
	return &Replaced{InstanceType: r.InstanceType}
}

// check reports values that no entry can have.
func (r *Replaced) check(v *validator) {
	if r != nil {
		checkInstanceType(v, "replaced.instance_type", value(r.InstanceType))
	}
}

// check reports values that no entry can have.
func (a *Aborted) check(v *validator) {
	if a == nil {
		return
	}
	d := a.Instead
	if err := fleet.CheckKind(d.Kind); err != nil {
		v.addf("aborted.instead.kind", "%v", err)
	}
	checkInstanceType(v, "aborted.instead.instance_type", d.InstanceType)
	v.nested("aborted.instead.args", d.Args)
}
