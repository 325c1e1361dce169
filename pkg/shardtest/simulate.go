package shardtest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Outcome is what became of a simulation.
type Outcome struct {
	Timeline *Timeline
	Lasted   time.Duration // of the shard's time
	Problems []string      // what must not be; none: all is well
}

// The time that a shard has, once nothing goes wrong any more.
const (
	// settleWithin: a machine that never registers is noticed after five minutes
	// and replaced, and so may its replacement be.
	settleWithin = 15 * time.Minute
	quiet        = 3 * time.Minute
)

// settlesWithin is the time that a shard has for all that a history leaves to be done:
// a group whose creates failed may wait once more, and its next tries take one after
// the other until they have settled; and whatever is built otherwise may be replaced
// one by one, in all groups.
func (p Pacing) settlesWithin() time.Duration {
	const most, each = 16, 2 * time.Minute // instances; from one's create to the end of that which it replaces
	return settleWithin + 2*p.BackoffMax + most*(p.Settle+each)
}

// Simulate lives through the history of a seed, heals all faults, and judges what
// is left: the shard settles, keeps what it promised, and changes nothing that
// nobody asks it to, a change of leaders included. It must be called inside a
// synctest bubble. The error is about the simulation, not about the shard.
func Simulate(seed uint64, length time.Duration, o Options) (Outcome, error) {
	began := time.Now()
	h, err := Generate(seed, length)
	if err != nil {
		return Outcome{}, fmt.Errorf("draw the history of seed %d: %w", seed, err)
	}
	o.Seed, o.Servers, o.Spot, o.Lag, o.Settings = seed, h.Servers, h.Spot, h.Lag, DefaultSettings()
	o.Settings.Pacing, o.Together = h.Pacing, seed%2 == 0
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

// live plays a script and what comes after every one.
func (s *Shard) live(script Script) error {
	if err := s.Play(script); err != nil {
		return err
	}
	s.Timeline.Say("driver", "heal")
	if err := doHeal(s, args{}); err != nil {
		return err
	}
	time.Sleep(quiet) // whoever backed off tries again by then
	if err := s.Settle(s.settings.settlesWithin()); err != nil {
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
	if err := s.Settle(quiet); err != nil {
		return fmt.Errorf("after the last handover: %w", err)
	}
	if after := s.members(); !maps.Equal(before, after) {
		return fmt.Errorf("a handover of a settled shard changed its instances from %s to %s", s.names(before), s.names(after))
	}
	return nil
}

// members are the instances that are not gone, and their phases.
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
