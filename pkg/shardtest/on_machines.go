package shardtest

import (
	"strconv"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// pick returns a machine that is up: that of an instance, or one chosen by the number of "any".
func (s *Shard) pick(name string) (*machine, error) {
	text, any := strings.CutPrefix(name, "any")
	var up []*machine
	for _, m := range s.allMachines() {
		if !m.isDown() {
			up = append(up, m)
			if !any && s.Timeline.Name(string(m.vm.ID)) == name {
				return m, nil
			}
		}
	}
	if n, err := strconv.Atoi(text); any && err == nil && len(up) > 0 {
		return up[n%len(up)], nil
	}
	return nil, nothing("there is no machine of %s", name)
}

func (m *machine) isDown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down
}

func doVMDies(s *Shard, a args) error     { return s.strike(a, "dies", s.world.Kill) }
func doVMStops(s *Shard, a args) error    { return s.strike(a, "stops", s.world.Stop) }
func doVMVanishes(s *Shard, a args) error { return s.strike(a, "vanishes", s.world.Vanish) }

// strike does something to a machine without a notice.
func (s *Shard) strike(a args, how string, do func(fleet.InstanceID) bool) error {
	m, err := s.pick(a.words[0])
	if err != nil {
		return err
	}
	s.Timeline.Say("machine", "%s %s", m.vm.ID, how)
	s.book.doom(m.vm.ID)
	do(m.vm.ID)
	return nil
}

// doNotice announces a spot interruption and carries it out.
func doNotice(s *Shard, a args) error {
	m, err := s.pick(a.words[0])
	if err != nil {
		return err
	}
	at := time.Now().Add(a.span)
	s.Timeline.Say("machine", "%s is to be taken in %s", m.vm.ID, a.span)
	s.book.doom(m.vm.ID)
	m.cloud.announce(at)
	s.announced(1)
	s.work.Go(func() {
		defer s.announced(-1)
		if m.lives(a.span) {
			s.Timeline.Say("machine", "%s is taken", m.vm.ID)
			s.world.Stop(m.vm.ID)
		}
	})
	return nil
}

func (s *Shard) announced(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taking += by
}

// lives waits, and reports whether the machine is still up.
func (m *machine) lives(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return !m.isDown()
	case <-m.ended:
		return false
	}
}

func doAgentDies(s *Shard, a args) error     { return s.restartAgent(a, false) }
func doAgentRestarts(s *Shard, a args) error { return s.restartAgent(a, true) }

func (s *Shard) restartAgent(a args, orderly bool) error {
	m, err := s.pick(a.words[0])
	if err != nil {
		return err
	}
	what := "dies"
	if orderly {
		what = "is told to stop"
		s.book.doom(m.vm.ID) // the agent reports that it shuts down
	}
	s.Timeline.Say("machine", "the agent of %s %s", m.vm.ID, what)
	s.work.Go(func() { m.killAgent(orderly, a.span) })
	return nil
}
