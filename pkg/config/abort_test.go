package config_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	_ "github.com/nstance/nstance/pkg/rapidseed"
)

// newer is scene with other machines for the groups of template knd.
func newer() string {
	return strings.NewReplacer(
		`"t": true`, `"t": false`, `"content": "default"`, `"content": "newer"`, `"vars": { "t": 1`, `"vars": { "t": 2`, `"x": [1]`, `"x": [2]`,
	).Replace(scene)
}

// built returns a rollout in which some instances were built like each of the groups.
func built(before *config.Shard, n int, groups ...fleet.Group) config.Rollout {
	r := config.Rollout{Built: map[string]int{}, Before: before}
	for _, g := range groups {
		r.Built[g.Hashes.Infra] += n
	}
	return r
}

// abort aborts the rollout of a group, which must succeed and can be repeated.
func abort(t testing.TB, s *config.Shard, key fleet.GroupKey, was config.GroupRecord, r config.Rollout) config.GroupRecord {
	t.Helper()
	input := encoded(t, was)
	next, err := config.AbortRollout(s, key, was, r, config.Checks{})
	if err != nil {
		t.Fatalf("abort the rollout of %s: %v", key, err)
	}
	if encoded(t, was) != input {
		t.Error("the input changed")
	}
	for _, is := range []config.GroupRecord{next, stored(t, next)} {
		if again, err := config.AbortRollout(s, key, is, r, config.Checks{}); err != nil || !again.Same(next) {
			t.Errorf("aborted twice: %s, %v", encoded(t, again), err)
		}
	}
	return stored(t, next)
}

// retry lets a group have the definition that it refuses.
func retry(t testing.TB, s *config.Shard, key fleet.GroupKey, was config.GroupRecord) config.GroupRecord {
	t.Helper()
	next, err := config.RetryRollout(s, key, was)
	if err != nil {
		t.Fatalf("retry the rollout of %s: %v", key, err)
	}
	if again, err := config.RetryRollout(s, key, next); err != nil || !again.Same(next) || again.Revision != next.Revision {
		t.Errorf("retried twice: %s, %v", encoded(t, again), err)
	}
	return next
}

// sameMachines reports whether two groups build the same machines.
func sameMachines(a, b fleet.Group) bool {
	return a.Hashes.Infra == b.Hashes.Infra && a.Kind == b.Kind && a.Arch == b.Arch && a.InstanceType == b.InstanceType &&
		a.SubnetPool == b.SubnetPool && reflect.DeepEqual(a.Subnets, b.Subnets) && reflect.DeepEqual(a.Args, b.Args) && a.Userdata == b.Userdata
}

// TestAbortRollout: a group that refuses the definition of a config has the machines of the one before as long
// as that is asked for, whatever is changed besides, and the vars and files that are asked for.
func TestAbortRollout(t *testing.T) {
	old, now := parse(t, scene), parse(t, newer())
	third := parse(t, strings.Replace(newer(), `"t": false`, `"t": 3`, 1))
	dynamic := change(t, old, own, config.GroupRecord{}, config.Change{Template: ptr("knd"), Size: ptr(3), Vars: map[string]any{"v": 1}})
	paused := record(t, `{"size":6,"rollout_paused":true,"revision":3}`)
	for key, was := range map[fleet.GroupKey]config.GroupRecord{web: {}, bare: paused, own: dynamic} {
		t.Run(key.Name, func(t *testing.T) {
			before, after := group(t, old, key, was), group(t, now, key, was)
			if before.Hashes.Infra == after.Hashes.Infra || before.Hashes.Runtime == after.Hashes.Runtime {
				t.Fatal("the config does not change the definition")
			}
			r := abort(t, now, key, was, built(old, 2, before, after))
			g := group(t, now, key, r)
			if !sameMachines(g, before) || g.Disabled != "" || g.Size != before.Size || g.RolloutPaused != before.RolloutPaused ||
				r.Revision <= was.Revision {
				t.Errorf("aborted: %+v\nbefore: %+v", g, before)
			}
			if g.Hashes.Runtime != after.Hashes.Runtime || !reflect.DeepEqual(g.Vars, after.Vars) || !reflect.DeepEqual(g.Files, after.Files) {
				t.Errorf("aborted: %+v\nasked for: %+v", g, after)
			}
			if a := g.AskedFor(); a.Infra != after.Hashes.Infra || a.InstanceType != after.InstanceType || a.SubnetPool != after.SubnetPool {
				t.Errorf("asked for: %+v\nwant %+v", a, after)
			}
			for name, c := range map[string]config.Change{
				"scaled": {Size: ptr(5), MaxSurge: &fleet.Surge{Count: 2}}, "paused": {RolloutPaused: ptr(true)},
				"resumed": {RolloutPaused: ptr(false)},
			} {
				if g := group(t, now, key, change(t, now, key, r, c)); !sameMachines(g, before) {
					t.Errorf("%s: %+v", name, g)
				}
			}
			if g := group(t, now, key, succeed(t, key, r, now, old)); !sameMachines(g, before) {
				t.Errorf("after the same config: %+v", g)
			}
			wished := group(t, third, key, was)
			if g := group(t, third, key, succeed(t, key, r, third, now)); g.Asked != nil || g.Refuses == "" || !sameMachines(g, wished) {
				t.Errorf("after another config: %+v", g)
			}
			if g := group(t, now, key, succeed(t, key, succeed(t, key, r, third, now), now, third)); !sameMachines(g, before) {
				t.Errorf("after another config that was a mistake: %+v", g)
			}
			retried := retry(t, now, key, r)
			for name, r := range map[string]config.GroupRecord{"retried": retried, "forgotten": r.ForgetAbort(after.Hashes.Infra)} {
				if g := group(t, now, key, r); !sameMachines(g, after) || g.Asked != nil || g.Refuses != "" || g.Aborted != (name == "retried") {
					t.Errorf("%s: %+v", name, g)
				}
			}
			if r := r.ForgetAbort("0123456789abcdef"); r.Aborted == nil {
				t.Error("the abort of another definition was forgotten")
			}
			again := abort(t, now, key, stored(t, retried), built(nil, 2, before, after))
			if g := group(t, now, key, again); !sameMachines(g, before) {
				t.Errorf("retried and aborted again: %+v", g)
			}
		})
	}
}

// TestAbortOfAChange: a group whose record changed the definition has the machines of the one before, and of
// that again if the next change is aborted, too.
func TestAbortOfAChange(t *testing.T) {
	s := parse(t, scene)
	dynamic := change(t, s, own, config.GroupRecord{}, config.Change{Template: ptr("knd"), Vars: map[string]any{"v": 1}})
	for key, was := range map[fleet.GroupKey]config.GroupRecord{web: {}, own: dynamic} {
		before := group(t, s, key, was)
		changed := stored(t, change(t, s, key, was, config.Change{InstanceType: ptr("huge")}))
		changed = change(t, s, key, changed, config.Change{Size: ptr(5), Vars: map[string]any{"v": 3}}) // replaces no machine
		now := group(t, s, key, changed)
		r := abort(t, s, key, changed, built(nil, 1, before, now))
		if g := group(t, s, key, r); !sameMachines(g, before) || g.Size != 5 || !reflect.DeepEqual(g.Vars, now.Vars) {
			t.Errorf("aborted: %+v\nbefore: %+v", g, before)
		}
		r = change(t, s, key, r, config.Change{InstanceType: ptr("other")})
		other := group(t, s, key, r)
		if other.InstanceType != "other" || other.Asked != nil {
			t.Errorf("changed afterwards: %+v", other)
		}
		r = abort(t, s, key, r, built(nil, 1, before, other))
		if g := group(t, s, key, r); !sameMachines(g, before) || g.Refuses != other.Hashes.Infra {
			t.Errorf("aborted again: %+v\nbefore: %+v", g, before)
		}
	}
}

// TestNothingToAbort: a rollout is aborted only if there is one, and if the definition of most outdated
// instances is known.
func TestNothingToAbort(t *testing.T) {
	old, now := parse(t, scene), parse(t, newer())
	before, after := group(t, old, web, config.GroupRecord{}), group(t, now, web, config.GroupRecord{})
	known := change(t, old, own, config.GroupRecord{}, config.Change{Template: ptr("knd")})
	removed, err := old.RemoveGroup(own, known, config.By{})
	if err != nil {
		t.Fatal(err)
	}
	undefined := record(t, `{"size":6,"missing":true,"undefined":true,"revision":5}`)
	most := built(old, 2, before, after)
	most.Built["0123456789abcdef"] = 3
	for name, c := range map[string]struct {
		key     fleet.GroupKey
		was     config.GroupRecord
		rollout config.Rollout
		want    error
	}{
		"no group":                      {own, config.GroupRecord{}, built(old, 1, before), config.ErrNoGroup},
		"removed":                       {own, removed, built(old, 1, before), config.ErrRemoved},
		"undefined":                     {own, undefined, built(old, 1, before), config.ErrUnknownGroup},
		"no instance":                   {web, config.GroupRecord{}, built(old, 1), config.ErrNoRollout},
		"all are up to date":            {web, config.GroupRecord{}, built(old, 2, after), config.ErrNoRollout},
		"no config before is known":     {web, config.GroupRecord{}, built(nil, 2, before, after), config.ErrNoDefinition},
		"only a few are of a known one": {web, config.GroupRecord{}, most, config.ErrNoDefinition},
	} {
		if r, err := config.AbortRollout(now, c.key, c.was, c.rollout, config.Checks{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %s, %v; want %v", name, saidBy(r), err, c.want)
		}
	}
}

// TestReplacedDefinitionIsNoWish: a create that was carried out can be repeated, whatever the record says of
// earlier definitions; a group that is deleted keeps nothing of them.
func TestReplacedDefinitionIsNoWish(t *testing.T) {
	s := parse(t, scene)
	create := config.Change{Template: ptr("knd"), InstanceType: ptr("small"), Create: true}
	r := change(t, s, own, config.GroupRecord{}, create)
	before := group(t, s, own, r)
	r = change(t, s, own, change(t, s, own, r, config.Change{InstanceType: ptr("huge")}), config.Change{InstanceType: ptr("small")})
	if r.Replaced == nil {
		t.Fatalf("changed twice: %s", saidBy(r))
	}
	change(t, s, own, r, create)
	r = abort(t, s, own, change(t, s, own, r, config.Change{InstanceType: ptr("huge")}), built(nil, 1, before))
	if r = r.Remove(); r.Replaced != nil || r.Aborted != nil {
		t.Errorf("deleted: %s", saidBy(r))
	}
}

// TestAbortKeepsNothingForbidden: a definition whose template, defaults, subnet pool or image the tenant may not
// use any more can't be had again, and a group that has it is disabled.
func TestAbortKeepsNothingForbidden(t *testing.T) {
	text := strings.NewReplacer(
		`"templates": {`, `"images": { "debian": { "provider": "aws", "fallback": "ami-01234567", "tenants": ["*"] } }, "templates": {
		    "old": { "tenants": ["*"], "kind": "knc", "arch": "arm64", "subnet_pool": "others", "args": { "i": "{{ .Image.debian }}" } },
		    "new": { "tenants": ["*"], "kind": "knc", "arch": "arm64", "subnet_pool": "workers" },`,
		`"workers": ["a", "b"]`, `"workers": { "subnets": ["a"], "tenants": ["*"] }, "others": { "subnets": ["o"], "tenants": ["*"] }`,
		`"dynamic_subnet_pools": ["workers"]`, `"dynamic_subnet_pools": ["workers", "others"]`,
	).Replace(scene)
	before := parse(t, text)
	key := fleet.GroupKey{Tenant: "prod", Name: "own"}
	was := change(t, before, key, config.GroupRecord{}, config.Change{Template: ptr("old")})
	of := built(before, 1, group(t, before, key, was))
	was = change(t, before, key, was, config.Change{Template: ptr("new")})
	aborted := abort(t, before, key, was, of)
	for name, c := range map[string]struct {
		from, to string
		asks     bool // the group is asked to be something else then, which it does not refuse
	}{
		"template":      {`"old": { "tenants": ["*"]`, `"old": { "tenants": ["default"]`, false},
		"defaults":      {`"defaults": { "tenants": ["*"]`, `"defaults": { "tenants": ["default"]`, true},
		"others":        {`"others": { "subnets": ["o"], "tenants": ["*"] }`, `"others": { "subnets": ["o"], "tenants": ["default"] }`, false},
		"debian":        {`"fallback": "ami-01234567", "tenants": ["*"]`, `"fallback": "ami-01234567", "tenants": ["default"]`, false},
		"have: workers": {`["workers", "others"]`, `["workers"]`, false},
	} {
		next, err := config.ParseAccepted([]byte(strings.Replace(text, c.from, c.to, 1)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if g := group(t, next, key, aborted); !c.asks && !strings.Contains(g.Disabled, name) || c.asks && g.Asked != nil || g.FilesHeld {
			t.Errorf("%s: %+v", name, g)
		}
		if r, err := config.AbortRollout(next, key, was, of, config.Checks{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: aborted: %s, %v", name, saidBy(r), err)
		}
	}
}

// TestAbortOutlivesItsTemplate: a definition whose template is gone can be had again, and goes on.
func TestAbortOutlivesItsTemplate(t *testing.T) {
	const more = `"templates": { "old": { "kind": "old", "arch": "arm64", "subnet_pool": "workers" },`
	old := parse(t, strings.Replace(scene, `"templates": {`, more, 1))
	was := change(t, old, own, config.GroupRecord{}, config.Change{Template: ptr("old")})
	before := group(t, old, own, was)
	now := parse(t, scene)
	was = change(t, now, own, was, config.Change{Template: ptr("knd")})
	r := abort(t, now, own, was, built(old, 1, before))
	if g := group(t, now, own, r); !sameMachines(g, before) || g.Disabled != "" {
		t.Errorf("aborted: %+v", g)
	}
}

// TestAbortIsJudgedByTheProvider: what the provider would refuse of the definition before, or what can't be
// rendered, is no definition to go back to.
func TestAbortIsJudgedByTheProvider(t *testing.T) {
	s := parse(t, scene)
	before := group(t, s, web, config.GroupRecord{})
	was := change(t, s, web, config.GroupRecord{}, config.Change{InstanceType: ptr("huge")})
	checks := config.Checks{Machine: func(g fleet.Group, _ map[string]any, _ []byte) (problems config.Problems) {
		if g.InstanceType == before.InstanceType {
			problems = append(problems, config.Problem{Path: "instance_type", Message: "no more of these"})
		}
		return problems
	}}
	r, err := config.AbortRollout(s, web, was, built(nil, 1, before), checks)
	if err == nil || !strings.Contains(err.Error(), "no more of these") {
		t.Errorf("aborted: %s, %v", saidBy(r), err)
	}
}

// TestAbortOfAHeldGroup: an abort and its end leave the hold of a group as it is. The record of a held group
// that is put back as it was ends the hold, and the abort stays.
func TestAbortOfAHeldGroup(t *testing.T) {
	s := parse(t, scene)
	held := record(t, `{"size":6,"instance_type":"huge","replaced":{},"missing":true,"revision":5}`)
	before := group(t, s, web, config.GroupRecord{})
	r := abort(t, s, web, held, built(nil, 1, before, before))
	if !r.Missing || retry(t, s, web, r).Missing != true {
		t.Errorf("aborted: %s", saidBy(r))
	}
}

// TestAbortTakesMost: a group has the definition that most of its outdated instances were built from, or the
// abort is refused.
func TestAbortTakesMost(t *testing.T) {
	old, now := parse(t, scene), parse(t, newer())
	rapid.Check(t, func(rt *rapid.T) {
		types := rapid.SampledFrom([]string{"", "small", "huge"})
		was := change(t, old, own, config.GroupRecord{}, config.Change{Template: ptr("knd"), InstanceType: ptr(types.Draw(rt, "first"))})
		was = change(t, old, own, was, config.Change{InstanceType: ptr(types.Draw(rt, "second"))})
		r := config.Rollout{Built: map[string]int{}}
		if rapid.Bool().Draw(rt, "known") {
			r.Before = old
		}
		most := 0
		is := group(t, now, own, was)
		for _, s := range []*config.Shard{old, now} {
			for _, of := range []string{"", "small", "huge"} {
				infra := group(t, s, own, change(t, s, own, was, config.Change{InstanceType: &of})).Hashes.Infra
				r.Built[infra] = rapid.IntRange(0, 3).Draw(rt, "built")
			}
		}
		for infra, n := range r.Built {
			if infra != is.Hashes.Infra {
				most = max(most, n)
			}
		}
		next, err := config.AbortRollout(now, own, was, r, config.Checks{})
		switch {
		case most == 0 && errors.Is(err, config.ErrNoRollout), most > 0 && errors.Is(err, config.ErrNoDefinition):
			return
		case err != nil:
			rt.Fatal(err)
		}
		g := group(t, now, own, next)
		if g.Hashes.Infra == is.Hashes.Infra || r.Built[g.Hashes.Infra] != most || g.AskedFor().Infra != is.Hashes.Infra {
			rt.Fatalf("aborted: %+v\nrollout: %+v", g, r)
		}
		if g := group(t, now, own, retry(t, now, own, next)); g.Hashes != is.Hashes {
			rt.Fatalf("retried: %+v", g)
		}
	})
}
