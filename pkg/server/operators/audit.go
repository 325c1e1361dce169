package operators

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

func onGroup(ctx context.Context, key fleet.GroupKey) { audit.On(ctx, "group "+key.String()) }

func onInstance(ctx context.Context, tenant, id string) { audit.On(ctx, "instance "+tenant+"/"+id) }

// Making notes which instance the call of ctx creates, before the instance is recorded: if the
// caller gets no response, it never learns the ID.
func Making(ctx context.Context, i fleet.Instance) { onInstance(ctx, i.Tenant, string(i.ID)) }

// Refreshing notes that the call of ctx switches to another version of the static config,
// before that is stored.
func Refreshing(ctx context.Context, before ConfigStatus, etag string) {
	audit.Wanted(ctx, etagBecomes(before, etag))
}

// etagBecomes returns the change of the static config's version. While the last accepted
// config runs, before.ETag is that of another text, and is left out.
func etagBecomes(before ConfigStatus, etag string) audit.Detail {
	from := before.ETag
	if before.RunningApplied {
		from = ""
	}
	return audit.Detail{Name: "etag", From: from, To: etag}
}

// details returns what the request asks for, without the values of vars.
func (n NewInstance) details() []audit.Detail {
	return []audit.Detail{
		{Name: "group", To: n.Group.Name}, {Name: "idempotency_key", To: n.Key}, {Name: "namespace", To: n.Namespace},
		{Name: "instance_type", To: n.Overrides.InstanceType},
		{Name: "vars", To: strings.Join(slices.Sorted(maps.Keys(n.Overrides.Vars)), ", ")},
	}
}

// changesOf returns what a call changed in a group. It may include changes of concurrent
// calls. Values of vars are left out, since they may be secrets.
func changesOf(before, after fleet.Group) []audit.Detail {
	changes := []audit.Detail{
		{Name: "template", From: before.Template, To: after.Template},
		{Name: "size", From: strconv.Itoa(before.Size), To: strconv.Itoa(after.Size)},
		{Name: "instance_type", From: before.AskedFor().InstanceType, To: after.AskedFor().InstanceType},
		{Name: "subnet_pool", From: before.AskedFor().SubnetPool, To: after.AskedFor().SubnetPool},
		{Name: "max_surge", From: before.MaxSurge.String(), To: after.MaxSurge.String()},
		{Name: "rollout_paused", From: strconv.FormatBool(before.RolloutPaused), To: strconv.FormatBool(after.RolloutPaused)},
		{Name: "refuses", From: before.Refuses, To: after.Refuses},
		{Name: "manager", From: before.Manager, To: after.Manager},
		{Name: "on_demand", From: onDemandText(before.OnDemand), To: onDemandText(after.OnDemand)},
		{Name: "removed", From: strconv.FormatBool(before.Removed), To: strconv.FormatBool(after.Removed)},
		{Name: "record_missing", From: before.RecordMissing, To: after.RecordMissing},
		{Name: "revision", From: strconv.FormatUint(before.Revision, 10), To: strconv.FormatUint(after.Revision, 10)},
	}
	names := maps.Clone(before.Vars)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, after.Vars)
	var vars []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, had := before.Vars[name]
		is, has := after.Vars[name]
		if had != has || !reflect.DeepEqual(was, is) {
			vars = append(vars, name)
		}
	}
	return append(changes, audit.Detail{Name: "vars", To: strings.Join(vars, ", ")})
}

// onDemandText returns a group's on-demand settings in one line, or the empty string.
func onDemandText(o *fleet.OnDemand) string {
	if o.IsZero() {
		return ""
	}
	text, err := json.Marshal(o)
	if err != nil {
		return ""
	}
	return string(text)
}

// wish returns the group that a call asks for.
type wish func(before fleet.Group) (after fleet.Group)

// upserted is the wish of an upsert. Fields that fall back to the template or the static
// config are empty.
func upserted(c config.Change) wish {
	return func(g fleet.Group) fleet.Group {
		setIfGiven(&g.Template, c.Template)
		g.Size = c.SizeFrom(g.Size, g.Leaving)
		asked := g.AskedFor()
		g.InstanceType, g.SubnetPool, g.Asked = asked.InstanceType, asked.SubnetPool, nil
		setIfGiven(&g.InstanceType, c.InstanceType)
		setIfGiven(&g.SubnetPool, c.SubnetPool)
		setIfGiven(&g.MaxSurge, c.MaxSurge)
		setIfGiven(&g.RolloutPaused, c.RolloutPaused)
		if c.OnDemand != nil {
			g.OnDemand = c.OnDemand
		}
		if len(c.Vars) > 0 {
			merged := map[string]any{}
			maps.Copy(merged, g.Vars)
			maps.Copy(merged, c.Vars)
			g.Vars = merged
		}
		if !c.OnlyPauses() {
			g.Manager = c.By.Manager
		}
		if !c.KeepsHold() {
			g.Removed, g.RecordMissing = false, ""
		}
		return g
	}
}

func setIfGiven[T any](field, given *T) {
	if given != nil {
		*field = *given
	}
}

// deleted is the wish to delete a group.
func deleted(g fleet.Group) fleet.Group {
	g.Size, g.Removed, g.RecordMissing = 0, true, ""
	return g
}

// reset is the wish to drop a group's overrides. Static values other than the size are not
// known here.
func reset(by config.By) wish {
	return func(g fleet.Group) fleet.Group {
		switch {
		case g.Static:
			g.Size, g.RolloutPaused, g.Refuses, g.Manager = g.StaticSize, false, "", ""
		case g.RecordMissing != "":
			g.Manager = by.Manager
		}
		g.RecordMissing = ""
		return g
	}
}

// aborted is the wish to abort a rollout. The definition before is not known here.
func aborted(g fleet.Group) fleet.Group {
	g.Refuses = g.AskedFor().Infra
	return g
}

// retried is the wish to retry a rollout.
func retried(g fleet.Group) fleet.Group {
	g.Refuses = ""
	return g
}

// changed calls change, and notes the wanted change of the group before the call and the
// actual one after it.
func changed(ctx context.Context, shard Shard, key fleet.GroupKey, want wish, change func() error, more ...audit.Detail) error {
	before := groupOf(shard, key)
	audit.Wanted(ctx, append(changesOf(before, want(before)), more...)...)
	if err := shard.edit(ctx, key, change); err != nil {
		return err
	}
	audit.Changed(ctx, append(changesOf(before, groupOf(shard, key)), more...)...)
	return nil
}

// groupOf returns the current group, or the zero Group if it is undefined and has no
// instances.
func groupOf(shard Shard, key fleet.GroupKey) fleet.Group {
	g, defined := shard.Groups.Group(key)
	if !defined && len(shard.Instances.Group(key)) == 0 {
		return fleet.Group{}
	}
	return g
}
