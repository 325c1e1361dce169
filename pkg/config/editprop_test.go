package config_test

import (
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	_ "github.com/nstance/nstance/pkg/rapidseed"
)

// After any sequence of edits, the records resolve without a problem, revisions never
// decrease, each edit affects only its own group, and none that is not forced that of another manager.
func TestEditsKeepTheShardWhole(t *testing.T) {
	s := parse(t, scene)
	keys := []fleet.GroupKey{web, bare, prod, own, {Tenant: "prod", Name: "own"}}
	rapid.Check(t, func(rt *rapid.T) {
		all := config.GroupRecords{}
		for range rapid.IntRange(1, 12).Draw(rt, "edits") {
			key := rapid.SampledFrom(keys).Draw(rt, "key")
			was := all[key]
			before, _ := s.Resolve(all)
			input := encoded(t, was)
			next, err := edit(rt, s, key, was)
			if encoded(t, was) != input {
				rt.Fatal("an edit changed its input")
			}
			if err != nil {
				continue
			}
			if next.Revision < was.Revision {
				rt.Fatalf("revision %d became %d", was.Revision, next.Revision)
			}
			all[key] = next
			after, problems := s.Resolve(all)
			if problems != nil {
				rt.Fatalf("stored %s\nproblems %v", encoded(t, next), problems)
			}
			for _, other := range keys {
				if other != key && !reflect.DeepEqual(after[other], before[other]) {
					rt.Fatalf("an edit of %s changed %s", key, other)
				}
			}
			checkNarrow(rt, s, key, next)
			if next.Stored() {
				if all[key] = stored(t, next); !reflect.DeepEqual(all[key], next) {
					rt.Fatalf("read again: %+v\nwritten: %+v", all[key], next)
				}
			}
		}
	})
}

// checkNarrow checks that the record of a static group has only fields that may be overridden.
func checkNarrow(t *rapid.T, s *config.Shard, key fleet.GroupKey, r config.GroupRecord) {
	r.Size, r.InstanceType, r.Vars, r.Rotation, r.Leaving, r.Replaced, r.Manager, r.Revision = nil, nil, nil, nil, nil, nil, "", 0
	if _, isStatic := s.Static(key); isStatic && mustJSON(r.Entry) != "{}" {
		t.Fatalf("static group %s has %s", key, mustJSON(r.Entry))
	}
}

func edit(t *rapid.T, s *config.Shard, key fleet.GroupKey, r config.GroupRecord) (config.GroupRecord, error) {
	ids := rapid.SliceOfN(rapid.SampledFrom([]fleet.InstanceID{idA, idB, idC}), 0, 3).Draw(t, "ids")
	by := config.By{Manager: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "by"), Force: rapid.Bool().Draw(t, "force")}
	managed := r.Manager != "" && r.Manager != by.Manager && !by.Force
	check := func(next config.GroupRecord, err error) (config.GroupRecord, error) {
		if managed && err == nil && !next.Same(r) {
			t.Fatalf("%+v changed %s to %s", by, mustJSON(r.Entry), mustJSON(next.Entry))
		}
		if !managed && errors.As(err, new(*config.ManagedError)) {
			t.Fatalf("%+v can't change %s: %v", by, mustJSON(r.Entry), err)
		}
		return next, err
	}
	switch rapid.IntRange(0, 6).Draw(t, "edit") {
	case 0:
		return check(s.RemoveGroup(key, r, by))
	case 1:
		return r.ClearLeaving(ids), nil
	case 2:
		return r.Forget(noon), nil
	case 3:
		return check(s.ResetGroup(key, r, by, noon))
	}
	c := config.Change{Remove: ids, By: by}
	if rapid.Bool().Draw(t, "has size") {
		c.Size = ptr(rapid.IntRange(-1, 10_001).Draw(t, "size"))
	}
	if rapid.Bool().Draw(t, "has template") {
		c.Template = ptr(rapid.SampledFrom([]string{"knd", "knc", "nope", ""}).Draw(t, "template"))
	}
	if rapid.Bool().Draw(t, "has pool") {
		c.SubnetPool = ptr(rapid.SampledFrom([]string{"workers", "control", "nope", ""}).Draw(t, "pool"))
	}
	if rapid.Bool().Draw(t, "has type") {
		c.InstanceType = ptr(rapid.SampledFrom([]string{"small", ""}).Draw(t, "type"))
	}
	if rapid.Bool().Draw(t, "has vars") {
		c.Vars = object().Draw(t, "vars")
	}
	next, err := check(s.ChangeGroup(key, r, c, config.Checks{}))
	if err != nil {
		return next, err
	}
	if again, err := s.ChangeGroup(key, next, c, config.Checks{}); err != nil || !reflect.DeepEqual(again, next) {
		t.Fatalf("the same change again: %v, %+v", err, again)
	}
	if next.Same(r) != (next.Revision == r.Revision) {
		t.Fatalf("revision %d became %d", r.Revision, next.Revision)
	}
	return next, nil
}

// A change that names instances shrinks a group by no more than those that were still there, unless
// it asks for more than all that it names. However often it is repeated while they leave, and in
// whatever state they are, no other goes.
func TestSizeOfAChangeThatNames(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size, asked := rapid.IntRange(0, 20).Draw(rt, "size"), rapid.IntRange(0, 20).Draw(rt, "asked")
		named := []fleet.InstanceID{"a", "b", "c", "d", "e"}[:rapid.IntRange(1, 5).Draw(rt, "named")]
		stays := func(ids []fleet.InstanceID) (some, others []fleet.InstanceID) {
			for _, id := range ids {
				if rapid.Bool().Draw(rt, string(id)) {
					some = append(some, id)
				} else {
					others = append(others, id)
				}
			}
			return some, others
		}
		there, left := stays(named)
		c := config.Change{Size: &asked, Remove: there, Left: left}
		got := c.SizeFrom(size, nil)
		switch {
		case asked >= size || size-asked > len(named):
			if got != asked {
				rt.Fatalf("size %d, want %d as asked", got, asked)
			}
		case got < asked || size-got > len(there):
			rt.Fatalf("%d of %d go, %d were named and there", size-got, size, len(there))
		}
		for range 3 {
			listed, gone := stays(there)
			again := config.Change{Size: &asked, Remove: listed, Left: append(gone, left...)}
			if now := again.SizeFrom(got, there); now != got {
				rt.Fatalf("repeated while those that it names leave, it leads from %d to %d", got, now)
			}
		}
	})
}
