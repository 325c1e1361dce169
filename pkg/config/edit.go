package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// Reasons to refuse a change, besides invalid values.
var (
	// ErrRestricted: static config defines the group, and the field can only be changed there.
	ErrRestricted = errors.New("set by static config: only size, instance_type, vars, max_surge and rollout_paused of this group " +
		"can be changed here")
	// ErrNoGroup: the group does not exist. A change with a template creates it.
	ErrNoGroup = errors.New("no such group")
	// ErrRemoved: the group is being deleted. A change with a template recreates it.
	ErrRemoved = errors.New("the group is being deleted: set a template to recreate it")
	// ErrExists: the group exists, and the change was to create it.
	ErrExists = errors.New("the group exists already and was not changed")
	// ErrUnknownGroup: the group has instances, but its record is missing and its definition is
	// unknown.
	ErrUnknownGroup = errors.New("its record is missing and its definition is unknown: " +
		"create the group, with a template and a size, or delete it")
)

// Change is one edit of a group. Nil fields are unchanged. An empty InstanceType or SubnetPool,
// empty Vars, and a zero MaxSurge revert to static config and template. A zero OnDemand disables
// on-demand instances for pods.
type Change struct {
	Template     *string
	Size         *int // the new absolute size
	InstanceType *string
	SubnetPool   *string
	Vars         map[string]any // all overrides; replaces the earlier ones
	MaxSurge     *fleet.Surge
	OnDemand     *fleet.OnDemand
	// RolloutPaused: whether no working instance is replaced because its definition is outdated or because
	// it has reached eligible_age. A change of nothing else does not end the hold of a group whose record is
	// missing, and may be made whatever manages the group.
	RolloutPaused *bool
	Remove        []fleet.InstanceID // instances to remove for the new size; needs Size
	// Left are those that were named to be removed, and have left the group's size already: they are
	// gone, or drain. They may be in Remove too.
	Left   []fleet.InstanceID
	Create bool // create a new group; needs Template
	By     By
}

// OnlyPauses reports whether the change pauses or resumes the rollout and changes nothing else.
func (c Change) OnlyPauses() bool {
	return c.RolloutPaused != nil && reflect.DeepEqual(c, Change{RolloutPaused: c.RolloutPaused, By: c.By})
}

// SizeFrom returns the size after a change of a group of the given size, some instances of which are
// leaving for it. If all that a smaller size takes away are named, it shrinks by those that were
// still there, and takes no other.
func (c Change) SizeFrom(size int, leaving []fleet.InstanceID) int {
	if c.Size == nil {
		return size
	}
	named, there := map[fleet.InstanceID]bool{}, map[fleet.InstanceID]bool{}
	for _, id := range slices.Concat(c.Remove, c.Left) {
		named[id] = true
		if !slices.Contains(c.Left, id) && !slices.Contains(leaving, id) {
			there[id] = true
		}
	}
	if size-*c.Size > len(named) {
		return *c.Size
	}
	return max(*c.Size, size-len(there))
}

// rebuilt reports whether a change affects more than the size. A group that the provider would
// refuse now can still be scaled down, also by a change that repeats all fields.
func rebuilt(before, after fleet.Group) bool {
	return before.Removed || before.Hashes != after.Hashes
}

func checkRemove(c Change) Problems {
	var problems Problems
	for i, id := range c.Remove {
		if _, err := fleet.ParseID(string(id)); err != nil {
			problems.addf(at("remove", i), "%v", err)
		}
	}
	if len(c.Remove) > 0 && c.Size == nil {
		problems.addf("size", "required with remove: want the new size")
	}
	return problems
}

// checkRestricted refuses changes that differ from static config. Repeating its values is
// permitted.
func (s *Shard) checkRestricted(static Group, c Change) error {
	if c.Template != nil && *c.Template != static.Template {
		return fmt.Errorf("template: %w", ErrRestricted)
	}
	pools := []string{"", static.SubnetPool, s.effectivePool(static)}
	if c.SubnetPool != nil && !slices.Contains(pools, *c.SubnetPool) {
		return fmt.Errorf("subnet_pool: %w", ErrRestricted)
	}
	if c.OnDemand != nil && !c.OnDemand.Equal(static.OnDemand) {
		return fmt.Errorf("on_demand: %w", ErrRestricted)
	}
	return nil
}

func (s *Shard) effectivePool(g Group) string {
	return cmp.Or(g.SubnetPool, s.Templates[g.Template].SubnetPool)
}

// restricted reports the fields of an entry that conflict with its group's static definition.
// They do not come from the API: the group was dynamic before static config defined it, or the
// object was edited externally.
func (s *Shard) restricted(static Group, e Entry) Problems {
	var problems Problems
	ignored := func(field string, differs bool) {
		if differs {
			problems.addf(field, "ignored: %v", ErrRestricted)
		}
	}
	ignored("template", e.Template != nil && *e.Template != static.Template)
	ignored("subnet_pool", e.SubnetPool != nil && *e.SubnetPool != s.effectivePool(static))
	ignored("args", e.Args != nil && !reflect.DeepEqual(Merge(e.Args), Merge(static.Args)))
	ignored("load_balancers", e.LoadBalancers != nil && !slices.Equal(e.LoadBalancers, static.LoadBalancers))
	ignored("drain_timeout", e.DrainTimeout != nil && (static.DrainTimeout == nil || *e.DrainTimeout != *static.DrainTimeout))
	ignored("on_demand", e.OnDemand != nil && !e.OnDemand.Equal(static.OnDemand))
	ignored("removed", e.Removed)
	return problems
}

// narrowed keeps the fields that a static group can be given through the API.
func (e Entry) narrowed() Entry {
	return Entry{
		Size: e.Size, InstanceType: e.InstanceType, Vars: e.Vars, Rotation: e.Rotation, RolloutPaused: e.RolloutPaused,
		Replaced: e.Replaced.narrowed(), Aborted: e.Aborted, Manager: e.Manager, Leaving: e.Leaving, Revision: e.Revision,
		unknown: e.unknown,
	}
}

// changed applies a change without validating it against the shard. An entry that is being
// removed or could not be read starts over. It fails only if vars have a value without a JSON
// form.
func (e Entry) changed(c Change) (Entry, error) {
	if e.Removed || e.unreadable != nil {
		e = Entry{}
	}
	e.SizeKept = c.Size == nil && (e.SizeKept || e.Undefined && c.Create)
	e = e.managedBy(c)
	if !c.KeepsHold() {
		e.Missing, e.Undefined = false, false
	}
	e.keepOnly(c.Template)
	set(&e.Template, c.Template)
	set(&e.Size, c.Size)
	set(&e.InstanceType, c.InstanceType)
	set(&e.SubnetPool, c.SubnetPool)
	if c.MaxSurge != nil {
		if e.Rotation = (&Rotation{MaxSurge: *c.MaxSurge}); *c.MaxSurge == (fleet.Surge{}) {
			e.Rotation = nil
		}
	}
	e.RolloutPaused = value(c.RolloutPaused, &e.RolloutPaused)
	if c.OnDemand != nil {
		if e.OnDemand = c.OnDemand.Clone(); c.OnDemand.IsZero() {
			e.OnDemand = nil
		}
	}
	if c.Vars != nil {
		vars, err := normalizeMap(c.Vars)
		if err != nil {
			return Entry{}, err
		}
		if e.Vars = vars; len(vars) == 0 {
			e.Vars = nil
		}
	}
	if len(c.Remove) > 0 {
		leaving := slices.Concat(e.Leaving, c.Remove)
		slices.Sort(leaving)
		e.Leaving = slices.Compact(leaving)
	}
	return e, nil
}

// set sets a field if a value is given; an empty string clears it.
func set[T comparable](field **T, given *T) {
	if given == nil {
		return
	}
	v := *given
	if s, isText := any(v).(string); isText && s == "" {
		*field = nil
		return
	}
	*field = &v
}

func (e Entry) outliving(static Group) Entry {
	e = e.narrowed()
	e.Replaced = nil
	set(&e.Template, &static.Template)
	set(&e.SubnetPool, &static.SubnetPool)
	if e.Size == nil {
		set(&e.Size, static.Size)
	}
	if e.InstanceType == nil {
		set(&e.InstanceType, &static.InstanceType)
	}
	set(&e.DrainTimeout, static.DrainTimeout)
	if e.Rotation == nil {
		set(&e.Rotation, static.Rotation)
	}
	e.OnDemand, e.LoadBalancers = static.OnDemand.Clone(), slices.Clone(static.LoadBalancers)
	if static.Args != nil {
		e.Args = Merge(static.Args)
	}
	if static.Vars != nil || e.Vars != nil {
		e.Vars = Merge(static.Vars, e.Vars)
	}
	return e
}
