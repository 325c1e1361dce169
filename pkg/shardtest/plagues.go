package shardtest

import (
	"fmt"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
)

// The instance types that fail.
const (
	rotten      = "rotten"  // machines die after running for rottenFor
	unknownType = "unknown" // the provider refuses it
	rottenFor   = 5 * time.Second
)

// plagues are faults of the creates of single groups or instance types, and of deletes. Safe for
// concurrent use.
type plagues struct {
	shard *Shard

	mu    sync.Mutex
	dies  map[string]time.Duration // by group: new machines die after this
	mute  map[string]bool          // by group: agents don't start
	holds bool                     // no machine can be deleted
}

func newPlagues(s *Shard) *plagues {
	return &plagues{shard: s, dies: map[string]time.Duration{}, mute: map[string]bool{}}
}

// strikes applies the faults of its group to a machine that runs now. It reports whether the
// agent must not start.
func (p *plagues) strikes(m *machine) (mute bool) {
	group := m.vm.Tags[provider.TagGroup]
	p.mu.Lock()
	after, dies := p.dies[group]
	mute = p.mute[group]
	p.mu.Unlock()
	if m.spec.InstanceType == rotten {
		after, dies = rottenFor, true
	}
	if dies {
		p.shard.announced(1)
		p.shard.work.Go(func() {
			defer p.shard.announced(-1)
			if m.lives(after) {
				p.shard.world.Kill(m.vm.ID)
			}
		})
	}
	return mute
}

// refuses returns the error of a create that the provider refuses, or nil.
func (p *plagues) refuses(spec provider.Spec) error {
	if spec.InstanceType == unknownType {
		return fmt.Errorf("%w: there is no instance type %s", provider.ErrInvalid, spec.InstanceType)
	}
	return nil
}

// keeps returns the error of all deletes, or nil.
func (p *plagues) keeps() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holds {
		return fmt.Errorf("%w: you may not delete machines", provider.ErrUnauthorized)
	}
	return nil
}

func (p *plagues) keep(holds bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = holds
}

// settles reports whether a machine of the group and type that is created now can settle, given
// how long that takes.
func (p *plagues) settles(group, instanceType string, within time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	after, dies := p.dies[group]
	if instanceType == rotten {
		after, dies = rottenFor, true
	}
	return instanceType != unknownType && !p.mute[group] && (!dies || after > within)
}

func (p *plagues) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.dies)
	clear(p.mute)
	p.holds = false
}

func (p *plagues) set(do func(*plagues)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	do(p)
	return nil
}

func doMachinesDie(s *Shard, a args) error {
	return s.plagues.set(func(p *plagues) { p.dies[a.words[0]] = a.span })
}

func doMachinesMute(s *Shard, a args) error {
	return s.plagues.set(func(p *plagues) { p.mute[a.words[0]] = true })
}

func doMachinesFair(s *Shard, a args) error {
	return s.plagues.set(func(p *plagues) { delete(p.dies, a.words[0]); delete(p.mute, a.words[0]) })
}

func doProviderKeeps(s *Shard, _ args) error {
	s.plagues.keep(true)
	return nil
}

// doProviderTakes makes the provider throttle calls beyond a number in ten seconds.
func doProviderTakes(s *Shard, a args) error {
	s.world.Throttle(fake.Throttle{PerSecond: float64(a.count) / 10, Burst: a.count})
	return nil
}
