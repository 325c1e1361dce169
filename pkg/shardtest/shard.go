package shardtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
)

// Options describe a shard to simulate.
type Options struct {
	Seed    uint64
	Servers int // 1 to 3, named a, b, c
	// Calm makes all latencies constant, so that a script's timeline is the same in every
	// run.
	Calm bool
	// Spot makes all machines spot instances.
	Spot bool
	// Lag is the maximum lag of the provider's reads; a provider with lag can't be watched.
	// 0 means consistent reads.
	Lag time.Duration
	// Cache makes each server keep records in a file.
	Cache bool
	// Logs adds all log lines of servers and agents to the timeline.
	Logs bool
	// Dir is the directory of the agents' files.
	Dir      string
	Settings Settings
}

// Shard is a simulated shard. It must be created, used and closed inside one synctest bubble.
// Its methods must be called by one goroutine, the driver.
type Shard struct {
	Timeline *Timeline

	opts     Options
	network  *Network
	book     *book
	mem      *mem.Store
	bucket   recorder // the store without faults
	listing  *objecttest.Listing
	store    *objecttest.Faults
	world    *fake.World
	settings Settings
	lost     map[fleet.GroupKey][]byte // the objects that were changed manually last, as they were before
	servers  []*server
	operator *operator
	plagues  *plagues
	ahead    time.Duration // of the wall clock of all hosts

	stop func() // ends the watch of machines
	work sync.WaitGroup

	mu       sync.Mutex
	machines map[string]*machine // by provider id
	closing  bool
	taking   int // machines with a termination notice that still run
}

// New returns a shard whose servers are not started yet.
func New(o Options) (*Shard, error) {
	if o.Servers < 1 || o.Servers > 3 {
		return nil, fmt.Errorf("make a shard: %d servers: want 1 to 3", o.Servers)
	}
	s := &Shard{
		Timeline: NewTimeline(), opts: o, settings: o.Settings,
		mem: mem.New(mem.Config{HashETags: true}), machines: map[string]*machine{}, lost: map[fleet.GroupKey][]byte{},
	}
	s.network = NewNetwork(o.Seed, time.Millisecond/2, 2*time.Millisecond)
	if o.Calm {
		s.network = NewNetwork(o.Seed, time.Millisecond, time.Millisecond)
	}
	s.book = newBook(s.Timeline)
	s.bucket = recorder{s.mem, s.book, &sync.Mutex{}}
	s.listing = objecttest.NewListing(s.bucket)
	s.store = objecttest.NewFaults(s.listing, nil)
	s.fairWeather()
	s.world = fake.New(s.worldConfig())
	s.book.lives, s.book.lags = s.lives, s.opts.Lag > 0
	s.plagues = newPlagues(s)
	s.book.pace.Pacing = o.Settings.Pacing
	s.book.pace.settles = func(i fleet.Instance) bool {
		return s.plagues.settles(i.Group, i.Provider.InstanceType, o.Settings.Settle)
	}
	if err := s.PutConfig(o.Settings); err != nil {
		return nil, err
	}
	for n := range o.Servers {
		s.servers = append(s.servers, &server{shard: s, name: string(rune('a' + n)), addr: fmt.Sprintf("192.168.0.%d", n+1)})
	}
	s.operator = newOperator(s)
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	s.work.Go(func() { s.watchMachines(ctx) })
	return s, nil
}

// shortestBoot is the minimum time from a machine's create to its agent's start.
const shortestBoot = 5 * time.Second

func (s *Shard) worldConfig() fake.Config {
	c := fake.Config{
		Seed: s.opts.Seed, OnCall: s.onCall, Remember: time.Minute,
		CreateLatency:    fake.Span{Min: 100 * time.Millisecond, Max: time.Second},
		DeleteLatency:    fake.Span{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond},
		GetLatency:       fake.Span{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond},
		ListLatency:      fake.Span{Min: 20 * time.Millisecond, Max: 200 * time.Millisecond},
		Lag:              fake.Span{Max: s.opts.Lag},
		Boot:             fake.Span{Min: shortestBoot, Max: 40 * time.Second},
		Shutdown:         fake.Span{Min: time.Second, Max: 20 * time.Second},
		LandsAfterCancel: 0.5,
	}
	if s.opts.Calm {
		c.CreateLatency, c.DeleteLatency = fake.Fixed(200*time.Millisecond), fake.Fixed(100*time.Millisecond)
		c.GetLatency, c.ListLatency = fake.Fixed(20*time.Millisecond), fake.Fixed(50*time.Millisecond)
		c.Boot, c.Shutdown, c.LandsAfterCancel = fake.Fixed(10*time.Second), fake.Fixed(5*time.Second), 0
	}
	return c
}

func (s *Shard) onCall(c fake.Call) {
	if c.Op == fake.OpCreate || c.Op == fake.OpDelete {
		s.Timeline.Say(c.By, "asks the provider to %s %s", c.Op, c.Ref.ID)
	}
}

// fairWeather ends all faults of the store.
func (s *Shard) fairWeather() {
	if s.opts.Calm {
		s.store.Set(objecttest.Always(objecttest.Outcome{Latency: 10 * time.Millisecond}))
		return
	}
	s.store.Set(objecttest.Seeded(s.opts.Seed, objecttest.Rates{Latency: 30 * time.Millisecond}))
}

// PutConfig writes the static config, as an administrator or Terraform would.
func (s *Shard) PutConfig(c Settings) error {
	s.settings = c
	if _, err := s.bucket.Put(context.Background(), configKey(), []byte(c.Text()), object.Precondition{}); err != nil {
		return fmt.Errorf("put config: %w", err)
	}
	return nil
}

// scope returns the scope of the shard's provider.
func scope() provider.Scope { return provider.Scope{ClusterID: clusterID, Shard: shardID} }

// Violations returns the violated invariants so far.
func (s *Shard) Violations() []string { return s.book.found() }

// Close ends everything that runs. It must be called before the bubble ends.
func (s *Shard) Close() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	for _, one := range s.servers {
		if one.life != nil {
			one.life.kill("at the end")
		}
	}
	for _, one := range s.servers {
		one.wait()
	}
	s.operator.close()
	stepClock(-s.ahead)
	s.stop()
	for _, m := range s.allMachines() {
		m.end("at the end", false, true)
	}
	s.work.Wait()
	s.store.Wait()
	// Let connections and timers of ended processes expire.
	time.Sleep(time.Minute)
	if s.opts.Dir != "" {
		os.RemoveAll(s.opts.Dir)
	}
}
