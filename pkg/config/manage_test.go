package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

var (
	pool     = config.By{Manager: "NstanceShardGroup nstance/web"}
	another  = config.By{Manager: "NstanceShardGroup other/web"}
	byHand   = config.By{}
	byForce  = config.By{Force: true}
	forcibly = config.By{Manager: another.Manager, Force: true}
)

// TestManagedGroup: a group that something manages is changed, deleted and reset by that alone, or by force,
// which ends the management or passes it on.
func TestManagedGroup(t *testing.T) {
	s := parse(t, scene)
	for key, change := range map[fleet.GroupKey]config.Change{web: {Size: ptr(3)}, own: {Template: ptr("knd"), Size: ptr(3)}} {
		change.By = pool
		managed, err := s.ChangeGroup(key, config.GroupRecord{}, change, config.Checks{})
		if err != nil || group(t, s, key, managed).Manager != pool.Manager {
			t.Fatalf("%s, which is claimed, is %s: %v", key, saidBy(managed), err)
		}
		managed = stored(t, managed)
		for name, c := range map[string]struct {
			by      config.By
			manager string
			refused bool
		}{
			"its manager":       {by: pool, manager: pool.Manager},
			"another manager":   {by: another, refused: true},
			"by hand":           {by: byHand, refused: true},
			"by force":          {by: byForce},
			"another, by force": {by: forcibly, manager: another.Manager},
		} {
			r, err := s.ChangeGroup(key, managed, config.Change{Size: ptr(1), By: c.by}, config.Checks{})
			checkManaged(t, key.Name+" is scaled by "+name, err, c.refused)
			if err == nil && (r.Manager != c.manager || *r.Size != 1) {
				t.Errorf("%s, scaled by %s, is %s", key, name, saidBy(r))
			}
			reset, err := s.ResetGroup(key, managed, c.by, noon)
			checkManaged(t, key.Name+" is reset by "+name, err, c.refused)
			if _, isStatic := s.Static(key); err == nil && isStatic && reset.Manager != "" {
				t.Errorf("%s, reset by %s, is %s", key, name, saidBy(reset))
			}
			if _, isStatic := s.Static(key); !isStatic {
				gone, err := s.RemoveGroup(key, managed, c.by)
				checkManaged(t, key.Name+" is deleted by "+name, err, c.refused)
				if gone.Manager != "" {
					t.Errorf("%s, deleted by %s, is %s", key, name, saidBy(gone))
				}
			}
		}
		paused, err := s.ChangeGroup(key, managed, config.Change{RolloutPaused: ptr(true), By: byHand}, config.Checks{})
		if err != nil || !paused.RolloutPaused || paused.Manager != pool.Manager {
			t.Errorf("%s, paused by hand, is %s: %v", key, saidBy(paused), err)
		}
	}
}

func checkManaged(t *testing.T, what string, err error, refused bool) {
	t.Helper()
	var managed *config.ManagedError
	if errors.As(err, &managed) != refused || err != nil && !refused {
		t.Errorf("%s: %v, want it refused: %v", what, err, refused)
	}
	if refused && !strings.Contains(err.Error(), "is managed by "+pool.Manager) {
		t.Errorf("%s: %v", what, err)
	}
}

// TestManagerOfAGroupThatGoes: nothing manages a group that is being deleted, and one that outlives its static
// definition keeps its manager.
func TestManagerOfAGroupThatGoes(t *testing.T) {
	s := parse(t, scene)
	made := change(t, s, own, config.GroupRecord{}, config.Change{Template: ptr("knd"), By: pool})
	gone, err := s.RemoveGroup(own, made, pool)
	if err != nil {
		t.Fatal(err)
	}
	if r := change(t, s, own, gone, config.Change{Template: ptr("knd"), By: byHand}); r.Manager != "" || r.Removed {
		t.Errorf("made again by hand, it is %s", saidBy(r))
	}
	scaled := change(t, s, web, config.GroupRecord{}, config.Change{Size: ptr(3), By: pool})
	if g := group(t, parse(t, with(``)), web, succeed(t, web, scaled, parse(t, with(``)), s)); g.Manager != pool.Manager || g.Static {
		t.Errorf("web, which was static, is %+v", g)
	}
}

// TestManagerOfAHeldGroup: the manager of a group whose record is missing changes without ending its hold.
func TestManagerOfAHeldGroup(t *testing.T) {
	s := parse(t, scene)
	missing := record(t, `{ "template": "knd", "size": 3, "missing": true, "revision": 4 }`)
	held := change(t, s, own, missing, config.Change{By: pool})
	if held.Manager != pool.Manager || !held.Missing || *held.Size != 3 {
		t.Errorf("managed, it is %s", saidBy(held))
	}
	if left := change(t, s, own, held, config.Change{By: byForce}); left.Manager != "" || !left.Missing {
		t.Errorf("not managed any more, it is %s", saidBy(left))
	}
	if scaled := change(t, s, own, missing, config.Change{Size: ptr(3), By: pool}); scaled.Manager != pool.Manager || scaled.Missing {
		t.Errorf("scaled, it is %s", saidBy(scaled))
	}
	if reset, err := s.ResetGroup(own, missing, pool, noon); err != nil || reset.Manager != pool.Manager || reset.Missing {
		t.Errorf("reset, it is %s: %v", saidBy(reset), err)
	}
	undefined := record(t, `{ "size": 3, "missing": true, "undefined": true, "revision": 4 }`)
	if _, err := s.ChangeGroup(own, undefined, config.Change{By: pool}, config.Checks{}); !errors.Is(err, config.ErrUnknownGroup) {
		t.Errorf("undefined: %v", err)
	}
}

// TestManagedCreate: a create whose answer was lost can be repeated though something manages the group meanwhile.
func TestManagedCreate(t *testing.T) {
	s := parse(t, scene)
	create := config.Change{Template: ptr("knd"), Size: ptr(2), Create: true}
	made := change(t, s, own, config.GroupRecord{}, create)
	managed := change(t, s, own, made, config.Change{Size: ptr(2), By: pool})
	if again, err := s.ChangeGroup(own, managed, create, config.Checks{}); err != nil || !again.Same(managed) {
		t.Errorf("created again, it is %s: %v", saidBy(again), err)
	}
	create.Size = ptr(3)
	if _, err := s.ChangeGroup(own, managed, create, config.Checks{}); !errors.Is(err, config.ErrExists) {
		t.Errorf("another create: %v", err)
	}
}

// TestEndsManagement: by a change that is not of the manager, and not only a pause.
func TestEndsManagement(t *testing.T) {
	managed := record(t, `{ "size": 3, "manager": "m", "revision": 4 }`)
	for _, c := range []struct {
		change config.Change
		was    config.GroupRecord
		want   string
	}{
		{config.Change{Size: ptr(2), By: byForce}, managed, "m"}, {config.Change{Size: ptr(2), By: pool}, managed, "m"},
		{config.Change{Size: ptr(2), By: config.By{Manager: "m"}}, managed, ""}, {config.Change{RolloutPaused: ptr(true)}, managed, ""},
		{config.Change{Size: ptr(2), By: byForce}, config.GroupRecord{}, ""},
	} {
		if got := c.change.EndsManagement(c.was); got != c.want {
			t.Errorf("%+v ends that of %q, want %q", c.change, got, c.want)
		}
	}
}

// TestManagerThatNobodyCanRead: a manager's name is short and printable.
func TestManagerThatNobodyCanRead(t *testing.T) {
	s := parse(t, scene)
	for _, name := range []string{"a\nb", "\x1b[2J", "\xff", strings.Repeat("a", 513)} {
		by := config.By{Manager: name, Force: true}
		_, changed := s.ChangeGroup(web, config.GroupRecord{}, config.Change{Size: ptr(3), By: by}, config.Checks{})
		_, reset := s.ResetGroup(own, record(t, `{ "template": "knd", "missing": true }`), by, noon)
		for _, err := range []error{changed, reset} {
			var problems config.Problems
			if !errors.As(err, &problems) || problems[0].Path != "manager" {
				t.Errorf("%.20q: %v", name, err)
			}
		}
	}
}
