package shardtest

import (
	"time"

	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
)

func (s *Shard) doStoreFair(args) error {
	s.fairWeather()
	return nil
}

func (s *Shard) doStoreDown(args) error {
	s.store.Set(objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped, Latency: 50 * time.Millisecond}))
	return nil
}

func (s *Shard) doStoreSlow(a args) error {
	s.store.Set(objecttest.Seeded(s.opts.Seed, objecttest.Rates{Latency: a.span}))
	return nil
}

// doStoreLossy loses so many of a hundred requests, in every way that there is.
func (s *Shard) doStoreLossy(a args) error {
	each := float64(a.count) / 400
	s.store.Set(objecttest.Seeded(s.opts.Seed, objecttest.Rates{
		Dropped: each, ReplyLost: each, Late: each, Hung: each, Latency: 30 * time.Millisecond, Delay: 20 * time.Second,
	}))
	return nil
}

func (s *Shard) doProviderFair(args) error {
	s.world.Mend()
	return nil
}

func (s *Shard) doProviderDown(args) error {
	s.world.Outage(fake.ErrLost)
	return nil
}

func (s *Shard) doProviderThrottles(args) error {
	s.world.Outage(provider.ErrThrottled)
	return nil
}

// doProviderRefuses lets calls fail for certain; misses, before they took effect;
// loses, after it.
func (s *Shard) doProviderRefuses(a args) error {
	return s.fail(a, fake.Fault{Err: provider.ErrNoCapacity})
}
func (s *Shard) doProviderMisses(a args) error { return s.fail(a, fake.Fault{Err: fake.ErrLost}) }
func (s *Shard) doProviderLoses(a args) error {
	return s.fail(a, fake.Fault{Err: fake.ErrLost, Applied: true})
}
func (s *Shard) doProviderHangs(a args) error  { return s.fail(a, fake.Fault{Hang: true}) }
func (s *Shard) doProviderDelays(a args) error { return s.fail(a, fake.Fault{Delay: a.span}) }

func (s *Shard) fail(a args, f fake.Fault) error {
	s.world.FailNext(fake.Op(a.words[0]), a.count, f)
	return nil
}
