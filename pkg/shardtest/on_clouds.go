package shardtest

import (
	"time"

	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
)

func doStoreFair(s *Shard, _ args) error {
	s.fairWeather()
	return nil
}

func doStoreDown(s *Shard, _ args) error {
	s.store.Set(objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped, Latency: 50 * time.Millisecond}))
	return nil
}

func doStoreSlow(s *Shard, a args) error {
	s.store.Set(objecttest.Seeded(s.opts.Seed, objecttest.Rates{Latency: a.span}))
	return nil
}

// doStoreLossy loses a percentage of the requests, before or after their effect.
func doStoreLossy(s *Shard, a args) error {
	each := float64(a.count) / 400
	s.store.Set(objecttest.Seeded(s.opts.Seed, objecttest.Rates{
		Dropped: each, ReplyLost: each, Late: each, Hung: each, Latency: 30 * time.Millisecond, Delay: 20 * time.Second,
	}))
	return nil
}

func doProviderFair(s *Shard, _ args) error {
	s.fairProvider()
	return nil
}

func (s *Shard) fairProvider() {
	s.world.Mend()
	s.world.Throttle()
	s.plagues.keep(false)
}

func doProviderDown(s *Shard, _ args) error {
	s.world.Outage(fake.ErrLost)
	return nil
}

func doProviderThrottles(s *Shard, _ args) error {
	s.world.Outage(provider.ErrThrottled)
	return nil
}

// doProviderRefuses makes calls fail definitely; misses, before they took effect; loses, after
// that.
func doProviderRefuses(s *Shard, a args) error {
	return s.fail(a, fake.Fault{Err: provider.ErrSubnetFull})
}
func doProviderMisses(s *Shard, a args) error { return s.fail(a, fake.Fault{Err: fake.ErrLost}) }
func doProviderLoses(s *Shard, a args) error {
	return s.fail(a, fake.Fault{Err: fake.ErrLost, Applied: true})
}
func doProviderHangs(s *Shard, a args) error  { return s.fail(a, fake.Fault{Hang: true}) }
func doProviderDelays(s *Shard, a args) error { return s.fail(a, fake.Fault{Delay: a.span}) }

func (s *Shard) fail(a args, f fake.Fault) error {
	s.world.FailNext(fake.Op(a.words[0]), a.count, f)
	return nil
}
