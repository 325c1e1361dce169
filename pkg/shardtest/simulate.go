package shardtest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Outcome is the result of a simulation.
type Outcome struct {
	Timeline *Timeline
	Lasted   time.Duration // simulated time
	Problems []string      // violated invariants; empty if the simulation passed
}

// The time limits of a shard without faults.
const (
	// settleWithin: a machine that never registers is noticed after five minutes
	// and replaced, and so may its replacement be.
	settleWithin = 15 * time.Minute
	quiet        = 3 * time.Minute
)

// settlesWithin returns how long a shard may take to settle after a history: a group whose
// creates failed may back off once more and then create instances one by one until they have
// settled, and instances with another Infra hash may be replaced one by one, in all groups.
func (p Pacing) settlesWithin() time.Duration {
	const most, each = 16, 2 * time.Minute // instances; time from a create to the end of the replaced instance
	return settleWithin + 2*p.BackoffMax + most*(p.Settle+each)
}

// Simulate plays the history of a seed, ends all faults, and checks that the shard settles, keeps
// what it acknowledged, and changes nothing without a request, not even after a change of
// leaders. It must be called inside a synctest bubble. The error is about the simulation, not
// about the shard.
func Simulate(seed uint64, length time.Duration, o Options) (Outcome, error) {
	began := time.Now()
	h, err := Generate(seed, length)
	if err != nil {
		return Outcome{}, fmt.Errorf("draw the history of seed %d: %w", seed, err)
	}
	o.Seed, o.Servers, o.Spot, o.Lag, o.Cache, o.Settings = seed, h.Servers, h.Spot, h.Lag, h.Cache, DefaultSettings()
	o.Settings.Pacing = h.Pacing
	s, err := New(o)
	if err != nil {
		return Outcome{}, err
	}
	err = s.live(h.Script)
	lasted := time.Since(began)
	problems := s.Violations()
	if err != nil {
		problems = append(problems, err.Error())
	}
	s.Close()
	return Outcome{Timeline: s.Timeline, Lasted: lasted, Problems: problems}, nil
}

// live plays a script and the final checks.
func (s *Shard) live(script Script) error {
	if err := s.Play(script); err != nil {
		return err
	}
	s.Timeline.Say("driver", "heal")
	if err := doHeal(s, args{}); err != nil {
		return err
	}
	time.Sleep(quiet) // back-offs end meanwhile
	if err := s.Converge(s.settings.settlesWithin()); err != nil {
		return err
	}
	groups, err := s.operator.groups(patience)
	if err != nil {
		return fmt.Errorf("list groups of a settled shard: %w", err)
	}
	s.book.judgeSizes(groups)
	before := s.members()
	s.Timeline.Say("driver", "stop leader")
	if err := doStop(s, args{words: []string{"leader"}}); err != nil {
		return err
	}
	time.Sleep(quiet)
	if err := s.Converge(quiet); err != nil {
		return fmt.Errorf("after the last handover: %w", err)
	}
	if after := s.members(); !maps.Equal(before, after) {
		return fmt.Errorf("a handover of a settled shard changed its instances from %s to %s", s.names(before), s.names(after))
	}
	return nil
}

// members returns the instances without tombstones, and their phases.
func (s *Shard) members() map[fleet.InstanceID]fleet.Phase {
	all := map[fleet.InstanceID]fleet.Phase{}
	for _, i := range s.book.instances() {
		if i.Phase != fleet.Deleted {
			all[i.ID] = i.Phase
		}
	}
	return all
}

func (s *Shard) names(members map[fleet.InstanceID]fleet.Phase) (names []string) {
	for _, id := range slices.Sorted(maps.Keys(members)) {
		names = append(names, s.Timeline.Name(string(id)))
	}
	return names
}
