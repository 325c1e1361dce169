package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// What a change can be refused for, beside values that are wrong in themselves.
var (
	// ErrRestricted: static config names the group, and the field can only be
	// changed there.
	ErrRestricted = errors.New("set by static config: only size, instance_type, vars and max_surge of this group can be changed here")
	// ErrNoGroup: there is no such group. A change that names a template makes it.
	ErrNoGroup = errors.New("no such group")
	// ErrRemoved: the group is being deleted. Naming a template makes it anew.
	ErrRemoved = errors.New("the group is being deleted: give a template to create it anew")
	// ErrExists: there is such a group, and the change was to make a new one.
	ErrExists = errors.New("there is such a group already, and it was left as it is")
	// ErrUnknownGroup: the group has instances, its record is missing, and nothing is
	// known of its definition.
	ErrUnknownGroup = errors.New("its record is missing and nothing is known of its definition: " +
		"create the group, with a template and a size, or delete it")
)

// Change is one edit of a group. Fields that are nil stay as they are. An empty
// InstanceType or SubnetPool, empty Vars, and a zero MaxSurge fall back to what
// static config and template say.
type Change struct {
	Template     *string
	Size         *int // the new absolute size
	InstanceType *string
	SubnetPool   *string
	Vars         map[string]any // all overrides, in place of the earlier ones
	MaxSurge     *fleet.Surge
	Remove       []fleet.InstanceID // who leaves for the new size; needs Size
	Create       bool               // make a new group; needs Template
}

// Upsert checks a change against the shard and applies it. The error wraps
// ErrRestricted, ErrNoGroup, ErrRemoved, ErrExists, or a Problems with the names of the
// fields as paths; d is not modified. The same change twice gives the same
// result as once.
func (s *Shard) Upsert(d Dynamic, key fleet.GroupKey, c Change, checks Checks) (Dynamic, error) {
	if err := s.CheckChange(d, key, c, checks); err != nil {
		return Dynamic{}, fmt.Errorf("change group %s: %w", key, err)
	}
	changed, err := d.Upsert(key, c)
	if err != nil {
		return Dynamic{}, err
	}
	entry, _ := changed.Entry(key)
	if _, isStatic := s.Static(key); isStatic {
		entry = entry.narrowed()
	}
	return d.revised(key, entry), nil
}

// revised returns a copy of d in which key has the entry, as a new revision if it
// says anything new. It is later than any that was written, also of a group that was
// forgotten meanwhile: so no revision of a group comes twice.
func (d Dynamic) revised(key fleet.GroupKey, entry Entry) Dynamic {
	before, _ := d.Entry(key)
	entry.Revision = before.Revision
	if !reflect.DeepEqual(entry, before) {
		entry.Revision = max(before.Revision, d.Rev) + 1
	}
	return d.with(key, entry)
}

// CheckChange is the checking half of Upsert.
func (s *Shard) CheckChange(d Dynamic, key fleet.GroupKey, c Change, checks Checks) error {
	if err := fleet.CheckName(key.Name); err != nil {
		return Problems{{Path: "group", Message: err.Error()}}
	}
	if !s.HasTenant(key.Tenant) {
		return Problems{{Path: "tenant", Message: fmt.Sprintf("no such tenant %.80q %s", key.Tenant, have(s.allTenants()))}}
	}
	entry, _ := d.Entry(key)
	if err := s.checkPresence(d, key, c); err != nil {
		return err
	}
	problems := checkRemove(c)
	if len(problems) > 0 {
		c.Remove = nil // what it did wrong is said
	}
	changed, err := d.Upsert(key, c)
	if err != nil {
		problems.addf("vars", "%v", err)
		return problems
	}
	after, _ := changed.Entry(key)
	group, wrong, _ := s.resolve(key, after)
	if err := checks.archFits(group.InstanceType, group.Arch); err != nil {
		problems.addf("instance_type", "%v", err)
	}
	problems = slices.Concat(problems, after.check(), wrong)
	if before, _, _ := s.resolve(key, entry); len(problems) == 0 && rebuilt(before, group) {
		problems, _ = checks.refused(s, group) // what can't be rendered may be told for each instance
	}
	return problems.sorted().Err()
}

// checkPresence checks what a change asks for against what there is: a group to change,
// none to create, one of static config in which only some fields may change.
func (s *Shard) checkPresence(d Dynamic, key fleet.GroupKey, c Change) error {
	static, isStatic := s.Static(key)
	entry, exists := d.Entry(key)
	switch {
	case c.Create && c.Template == nil:
		return Problems{{Path: "template", Message: "required beside create: want the template of the group's instances"}}
	case c.Create && (isStatic || exists && !entry.givesWay(key, c)):
		return ErrExists
	case isStatic:
		return s.checkRestricted(static, c)
	case !exists && c.Template == nil:
		return ErrNoGroup
	case entry.Removed && c.Template == nil:
		return ErrRemoved
	}
	return nil
}

// rebuilt reports whether a change is of more than the size: nobody is kept from
// making smaller what can't be made any more, also by saying all of it again.
func rebuilt(before, after fleet.Group) bool {
	return before.Removed || before.Hashes != after.Hashes
}

// givesWay reports whether a create of the group goes through: the entry is of one that
// goes, or of which nothing is known but that it has instances, or is what it makes.
func (e Entry) givesWay(key fleet.GroupKey, c Change) bool {
	return e.Removed || e.Undefined || e.made(key, c)
}

// made reports whether an entry is just what a change makes where there is none, or
// where only the size was known, so that a create whose answer was lost can be repeated.
func (e Entry) made(key fleet.GroupKey, c Change) bool {
	made, err := Dynamic{}.Upsert(key, c)
	if err != nil || e.unread != nil {
		return false
	}
	want, _ := made.Entry(key)
	e.Revision, e.unknown = want.Revision, want.unknown
	if e.SizeKept && c.Size == nil {
		e.Size, e.SizeKept = want.Size, want.SizeKept
	}
	return reflect.DeepEqual(e, want)
}

func checkRemove(c Change) Problems {
	var problems Problems
	for i, id := range c.Remove {
		if _, err := fleet.ParseID(string(id)); err != nil {
			problems.addf(at("remove", i), "%v", err)
		}
	}
	if len(c.Remove) > 0 && c.Size == nil {
		problems.addf("size", "required beside remove: want the new size")
	}
	return problems
}

// checkRestricted refuses what would differ from static config. Saying the same
// again is no change.
func (s *Shard) checkRestricted(static Group, c Change) error {
	if c.Template != nil && *c.Template != static.Template {
		return fmt.Errorf("template: %w", ErrRestricted)
	}
	pools := []string{"", static.SubnetPool, s.effectivePool(static)}
	if c.SubnetPool != nil && !slices.Contains(pools, *c.SubnetPool) {
		return fmt.Errorf("subnet_pool: %w", ErrRestricted)
	}
	return nil
}

func (s *Shard) effectivePool(g Group) string {
	return cmp.Or(g.SubnetPool, s.Templates[g.Template].SubnetPool)
}

// restricted lists what an entry holds against the static definition of its
// group. None of it comes from the API: the group had a life of its own before
// static config named it, or someone edited the text.
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
	ignored("removed", e.Removed)
	return problems
}

// narrowed keeps what a group that static config names can be given here.
func (e Entry) narrowed() Entry {
	return Entry{
		Size: e.Size, InstanceType: e.InstanceType, Vars: e.Vars, Rotation: e.Rotation, Leaving: e.Leaving, Revision: e.Revision,
		unknown: e.unknown,
	}
}

// Upsert applies a change without asking whether the shard allows it. An entry
// that is on its way out, or could not be read, starts anew. It fails only when
// vars hold a value that has no JSON form. d is not modified.
func (d Dynamic) Upsert(key fleet.GroupKey, c Change) (Dynamic, error) {
	entry, _ := d.Entry(key)
	if entry.Removed || entry.unread != nil {
		entry = Entry{}
	}
	entry.SizeKept = c.Size == nil && (entry.SizeKept || entry.Undefined && c.Create)
	entry.Missing, entry.Undefined = false, false
	set(&entry.Template, c.Template)
	set(&entry.Size, c.Size)
	set(&entry.InstanceType, c.InstanceType)
	set(&entry.SubnetPool, c.SubnetPool)
	if c.MaxSurge != nil {
		if entry.Rotation = (&Rotation{MaxSurge: *c.MaxSurge}); *c.MaxSurge == (fleet.Surge{}) {
			entry.Rotation = nil
		}
	}
	if c.Vars != nil {
		vars, err := normalizeMap(c.Vars)
		if err != nil {
			return Dynamic{}, err
		}
		if entry.Vars = vars; len(vars) == 0 {
			entry.Vars = nil
		}
	}
	if len(c.Remove) > 0 {
		leaving := slices.Concat(entry.Leaving, c.Remove)
		slices.Sort(leaving)
		entry.Leaving = slices.Compact(leaving)
	}
	return d.with(key, entry), nil
}

// set takes over a field that was given; its zero value clears it, but for a
// size, where zero is a size.
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

// Remove checks that a group may be deleted, and marks it so. The error wraps
// ErrRestricted for a group that static config names, or ErrNoGroup. Deleting
// again changes nothing; d is not modified.
func (s *Shard) Remove(d Dynamic, key fleet.GroupKey) (Dynamic, error) {
	if _, isStatic := s.Static(key); isStatic {
		return Dynamic{}, fmt.Errorf("delete group %s: %w", key, ErrRestricted)
	}
	if _, ok := d.Entry(key); !ok {
		return Dynamic{}, fmt.Errorf("delete group %s: %w", key, ErrNoGroup)
	}
	return d.Remove(key), nil
}

// Remove marks a group of its own as to be scaled to zero, with drains, and then
// forgotten. Without an entry nothing changes. d is not modified.
func (d Dynamic) Remove(key fleet.GroupKey) Dynamic {
	entry, ok := d.Entry(key)
	if !ok {
		return d
	}
	if entry.unread != nil {
		entry = Entry{}
	}
	entry.Missing, entry.Undefined = false, false
	entry.Removed, entry.Leaving, entry.Size, entry.SizeKept = true, nil, nil, false
	return d.revised(key, entry)
}

// Forget drops what is kept of a group. d is not modified.
func (d Dynamic) Forget(key fleet.GroupKey) Dynamic {
	if _, ok := d.Entry(key); !ok {
		return d
	}
	groups := maps.Clone(d.Groups[key.Tenant])
	delete(groups, key.Name)
	d.Groups = maps.Clone(d.Groups)
	if len(groups) == 0 {
		delete(d.Groups, key.Tenant)
	} else {
		d.Groups[key.Tenant] = groups
	}
	return d
}

// Settle takes ids that have left out of the list of those that are leaving. d
// is not modified.
func (d Dynamic) Settle(key fleet.GroupKey, ids []fleet.InstanceID) Dynamic {
	entry, ok := d.Entry(key)
	if !ok || len(entry.Leaving) == 0 {
		return d
	}
	entry.Leaving = slices.DeleteFunc(slices.Clone(entry.Leaving), func(id fleet.InstanceID) bool {
		return slices.Contains(ids, id)
	})
	if len(entry.Leaving) == 0 {
		entry.Leaving = nil
	}
	return d.with(key, entry)
}

// Adopt copies the definition of every group that last named and next does not
// into the group's entry, if it has one, so that the group lives on as one of
// its own with the same hashes. What the entry overrides it keeps, and one that
// says that the group is to go goes on to say so. d is not modified.
func (d Dynamic) Adopt(last, next *Shard) Dynamic {
	for tenant, groups := range d.Groups {
		for name, entry := range groups {
			key := fleet.GroupKey{Tenant: tenant, Name: name}
			static, was := last.Static(key)
			if _, is := next.Static(key); was && !is && entry.unread == nil && !entry.Removed && !entry.Undefined {
				d = d.with(key, entry.outliving(static))
			}
		}
	}
	return d
}

func (e Entry) outliving(static Group) Entry {
	e = e.narrowed()
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
	e.LoadBalancers = slices.Clone(static.LoadBalancers)
	if static.Args != nil {
		e.Args = Merge(static.Args)
	}
	if static.Vars != nil || e.Vars != nil {
		e.Vars = Merge(static.Vars, e.Vars)
	}
	return e
}
