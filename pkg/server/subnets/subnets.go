// Package subnets chooses the subnet of each create from the pool of its group, by the free
// addresses that the provider reports and by the creates that it refused.
package subnets

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/paced"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/problems"
)

// hintFor is how long the provider's answer about free addresses counts as fresh.
const hintFor = 30 * time.Second

// refusalBackoff is the back-off of a subnet that refused consecutive creates.
func refusalBackoff() retry.Backoff {
	return retry.Backoff{First: time.Second, Limit: 30 * time.Second}
}

// forgetRefusal is when a refusal no longer counts towards the back-off.
const forgetRefusal = 5 * time.Minute

// statusTimeout limits a call even if other calls to the provider may take longer.
const statusTimeout = paced.StatusTimeout

// Config is what a Chooser needs. Its functions are safe for concurrent use.
type Config struct {
	Port    provider.SubnetCapacity              // nil: the provider does not report free addresses
	Used    func() []string                      // the subnets of all groups
	Timeout func() time.Duration                 // of each call
	Go      func(func())                         // runs a worker, which is waited for at the end of the term
	Missing func(ctx context.Context, err error) // is called once with the problem of a subnet that does not exist
	Logger  *slog.Logger
}

// Chooser tracks the free addresses of the provider's subnets. It is safe for concurrent use.
type Chooser struct {
	cfg    Config
	asking chan struct{} // semaphore of one call

	mu       sync.Mutex
	rooms    rooms
	askedAt  time.Time       // when the last call ended, or failed
	reported map[string]bool // subnets that were reported not to exist
}

// New returns a Chooser that knows nothing of the subnets yet.
func New(cfg Config) *Chooser {
	return &Chooser{cfg: cfg, asking: make(chan struct{}, 1), rooms: rooms{refused: map[string]refusal{}}, reported: map[string]bool{}}
}

// rooms is the state by which a subnet is chosen.
type rooms struct {
	// free is the number of free addresses that the provider reported, less the creates
	// since. It is negative for a subnet that does not exist; unknown ones are missing.
	free    map[string]int
	refused map[string]refusal
}

type refusal struct {
	at    time.Time
	until time.Time
	times int // consecutive
	err   error
}

// forget drops refusals older than forgetRefusal.
func (r rooms) forget(now time.Time) {
	maps.DeleteFunc(r.refused, func(_ string, f refusal) bool { return now.Sub(f.at) >= forgetRefusal })
}

// choose returns the first subnet of a pool that is not known to be full or, if there is none,
// why each of them can't be used.
func (r rooms) choose(pool []string, now time.Time) (subnet string, full []string) {
	for _, subnet := range pool {
		free, known := r.free[subnet]
		refusal, refused := r.refused[subnet]
		switch {
		case refused && now.Before(refusal.until):
			full = append(full, fmt.Sprintf("subnet %s: %v", subnet, refusal.err))
		case known && free < 0:
			full = append(full, fmt.Sprintf("subnet %s: does not exist", subnet))
		case known && free == 0:
			full = append(full, fmt.Sprintf("subnet %s: no free addresses", subnet))
		default:
			return subnet, nil
		}
	}
	return "", full
}

// Place reserves an address in the first subnet of the group's pool that has a free one. If
// none has, it returns provider.ErrSubnetFull with the reason of each subnet. It returns "" for
// a group without subnets. It waits for the provider's answer only if there was none yet, or
// if all subnets seem to be full: a stale positive answer costs at most one refused create.
func (s *Chooser) Place(ctx context.Context, g fleet.Group) (string, error) {
	if len(g.Subnets) == 0 {
		return "", nil
	}
	full := []string{"free addresses are not known yet"}
	for _, last := range []bool{false, true} {
		subnet, why, fresh := s.choose(g.Subnets, time.Now())
		if subnet != "" {
			if !fresh {
				s.cfg.Go(func() { s.Refresh(ctx, g.Subnets...) })
			}
			return subnet, nil
		}
		if len(why) > 0 {
			full = why
		}
		if last || fresh {
			break
		}
		s.Refresh(ctx, g.Subnets...)
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("subnet pool %s: %w: %s", g.SubnetPool, provider.ErrSubnetFull, strings.Join(full, "; "))
}

// choose chooses a subnet and reserves one of its addresses. fresh reports that the provider
// need not, or can't, be asked again.
func (s *Chooser) choose(pool []string, now time.Time) (subnet string, full []string, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh = s.cfg.Port == nil || (!s.askedAt.IsZero() && now.Sub(s.askedAt) < hintFor)
	if s.askedAt.IsZero() && !fresh {
		return "", nil, false
	}
	subnet, full = s.rooms.choose(pool, now)
	if s.rooms.free[subnet] > 0 {
		s.rooms.free[subnet]--
	}
	return subnet, full, fresh
}

// Refuse records that a create was refused because the subnet is full.
func (s *Chooser) Refuse(subnet string, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rooms.forget(now)
	r := s.rooms.refused[subnet]
	if !now.Before(r.until) { // otherwise this create was concurrent with the last refused one
		r.times++
	}
	r.at, r.until, r.err = now, now.Add(refusalBackoff().Delay(r.times)), err
	s.rooms.refused[subnet] = r
}

// Accept clears a subnet's refusals after a successful create.
func (s *Chooser) Accept(subnet string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rooms.refused, subnet)
}

// Refresh reads the free addresses of all groups' subnets, and of more, in one call, unless the
// last answer is fresh; concurrent callers share one call. If it fails, free addresses are unknown and
// creates try the subnets in order.
func (s *Chooser) Refresh(ctx context.Context, more ...string) {
	if s.cfg.Port == nil {
		return
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return
	}
	s.mu.Lock()
	fresh := !s.askedAt.IsZero() && time.Since(s.askedAt) < hintFor
	s.mu.Unlock()
	if fresh {
		return
	}
	pools := s.pools(more)
	asking, cancel := context.WithTimeout(ctx, min(statusTimeout, s.cfg.Timeout()))
	free, err := s.cfg.Port.FreeAddresses(asking, pools)
	cancel()
	if err != nil {
		s.cfg.Logger.Warn("free addresses of subnets could not be read", slog.Any("error", err))
	}
	for _, subnet := range s.answered(pools, free, err, time.Now()) {
		err := fmt.Errorf("use subnet %s of server.subnet_pools: %w", subnet, provider.ErrNotFound)
		s.cfg.Missing(ctx, problems.Because(problems.ReasonSubnet, err))
	}
}

// pools returns the subnets of all groups and those in more, sorted and without duplicates.
func (s *Chooser) pools(more []string) []string {
	pools := slices.Concat(more, s.cfg.Used())
	slices.Sort(pools)
	return slices.Compact(pools)
}

// Forget drops the state of subnets that no group uses any more, and old refusals.
func (s *Chooser) Forget(now time.Time) {
	pools := s.pools(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rooms.forget(now)
	maps.DeleteFunc(s.reported, func(subnet string, _ bool) bool {
		_, used := slices.BinarySearch(pools, subnet)
		return !used
	})
}

// answered stores the provider's answer and returns the subnets that are newly known not to
// exist.
func (s *Chooser) answered(asked []string, free map[string]int, err error, now time.Time) (missing []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.askedAt = now
	s.rooms.free = nil
	if err != nil {
		return nil
	}
	s.rooms.free = make(map[string]int, len(asked))
	for _, subnet := range asked {
		n, ok := free[subnet]
		if ok {
			s.rooms.free[subnet] = max(0, n)
			delete(s.reported, subnet)
			continue
		}
		s.rooms.free[subnet] = -1
		if !s.reported[subnet] {
			s.reported[subnet] = true
			missing = append(missing, subnet)
		}
	}
	return missing
}

// Entries returns the number of subnets that were reported not to exist, and of those that
// refused creates.
func (s *Chooser) Entries() (missing, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.reported), len(s.rooms.refused)
}
