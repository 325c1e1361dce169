package config_test

import (
	"errors"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// TestPauseOfAHeldGroup: a pause and its end leave the hold of a group as it is, and another change ends it.
func TestPauseOfAHeldGroup(t *testing.T) {
	s := parse(t, scene)
	for key, text := range map[fleet.GroupKey]string{
		web: `{"size":6,"missing":true,"revision":5}`, own: `{"template":"knd","size":6,"missing":true,"revision":5}`,
	} {
		held := record(t, text)
		paused := change(t, s, key, held, config.Change{RolloutPaused: ptr(true)})
		if g := group(t, s, key, paused); !paused.Missing || !g.RolloutPaused || g.Size != 6 {
			t.Errorf("%s, which is paused, is %s", key, saidBy(paused))
		}
		if r := change(t, s, key, paused, config.Change{RolloutPaused: ptr(false)}); !r.Missing || r.RolloutPaused {
			t.Errorf("%s, which is resumed, is %s", key, saidBy(r))
		}
		if r := change(t, s, key, paused, config.Change{RolloutPaused: ptr(false), Size: ptr(2)}); r.Missing || *r.Size != 2 {
			t.Errorf("%s, which is scaled, is %s", key, saidBy(r))
		}
	}
	unknown := record(t, `{"size":6,"missing":true,"undefined":true,"revision":5}`)
	_, err := s.ChangeGroup(own, unknown, config.Change{RolloutPaused: ptr(true)}, config.Checks{})
	if !errors.Is(err, config.ErrUnknownGroup) {
		t.Errorf("a pause of a group of which only the instances are known: %v", err)
	}
}

// TestPausedGroupIsFound: the record of a held group that is put back as it was ends the hold, and the pause
// stays.
func TestPausedGroupIsFound(t *testing.T) {
	known := at(t, 20, `{"size":6,"missing":true,"rollout_paused":true,"revision":6}`)
	h := config.History{Known: known, Living: 6, Lives: true, Certain: true, Acting: true}
	r, differs := parse(t, scene).HoldGroup(web, at(t, 10, `{"size":6,"revision":5}`), h)
	if !differs || r.Missing || !r.RolloutPaused || *r.Size != 6 {
		t.Errorf("goes on with %s, differs: %v", saidBy(r), differs)
	}
}

// TestRolloutPaused: a pause of a static or dynamic group lasts through other changes and the end of its
// static definition, until it is resumed or reset, and changes nothing else.
func TestRolloutPaused(t *testing.T) {
	s := parse(t, scene)
	made := change(t, s, own, config.GroupRecord{}, config.Change{Template: ptr("knd")})
	for key, r := range map[fleet.GroupKey]config.GroupRecord{web: {}, own: made} {
		before := group(t, s, key, r)
		paused := change(t, s, key, r, config.Change{RolloutPaused: ptr(true)})
		if again := change(t, s, key, paused, config.Change{RolloutPaused: ptr(true)}); again.Revision != paused.Revision {
			t.Errorf("%s: a repeated pause is revision %d after %d", key, again.Revision, paused.Revision)
		}
		scaled := change(t, s, key, stored(t, paused), config.Change{Size: ptr(7)})
		after := group(t, s, key, scaled)
		if !after.RolloutPaused || after.Size != 7 || after.Hashes != before.Hashes || after.Disabled != "" {
			t.Errorf("%s is %+v", key, after)
		}
		resumed := change(t, s, key, scaled, config.Change{RolloutPaused: ptr(false)})
		if g := group(t, s, key, resumed); g.RolloutPaused || g.Size != 7 {
			t.Errorf("%s, which is resumed, is %+v", key, g)
		}
	}
	paused := change(t, s, web, config.GroupRecord{}, config.Change{RolloutPaused: ptr(true)})
	next := parse(t, with(``))
	if g := group(t, next, web, succeed(t, web, paused, next, s)); !g.RolloutPaused || g.Static || g.Removed {
		t.Errorf("web, which was static, is %+v", g)
	}
	if r, err := s.ResetGroup(web, paused, config.By{}, noon); err != nil || group(t, s, web, r).RolloutPaused {
		t.Errorf("web, which is reset, is %+v: %v", r, err)
	}
}
