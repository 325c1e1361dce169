package reconcile

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
	"github.com/nstance/nstance/pkg/retry"
)

// hintFor is how long the provider's word on free addresses is taken for new.
const hintFor = 30 * time.Second

// refusalBackoff is how long a subnet is left alone that refused a create, and
// refused all since: as long as a group waits that has nowhere else to go.
func refusalBackoff() retry.Backoff {
	return retry.Backoff{First: time.Second, Limit: 30 * time.Second}
}

// forgetRefusal is when a refusal says nothing about the next one any more.
const forgetRefusal = 5 * time.Minute

// The reasons of problems with room.
const (
	ReasonSubnetFull = "SubnetFull"     // no subnet of a group's pool has a free address
	ReasonQuota      = "QuotaUsedUp"    // the account or the zone has no more machines to give
	ReasonSubnet     = "SubnetNotFound" // a subnet of a pool does not exist
)

// subnets is what is believed of the room in the provider's subnets. It is safe
// for concurrent use.
type subnets struct {
	*term
	port   provider.SubnetCapacity // nil: the provider can't tell
	asking chan struct{}           // holds one while a question is under way

	mu       sync.Mutex
	rooms    rooms
	askedAt  time.Time       // when the last question was answered, or failed
	reported map[string]bool // subnets that were reported not to exist
}

func newSubnets(t *term) *subnets {
	s := &subnets{term: t, asking: make(chan struct{}, 1), rooms: rooms{refused: map[string]refusal{}}, reported: map[string]bool{}}
	s.port, _ = provider.SubnetCapacityOf(t.cfg.Provider)
	return s
}

// rooms are the beliefs that a subnet is chosen by.
type rooms struct {
	// free is the provider's word, less what was asked for since. A subnet that
	// was asked about and does not exist has a negative number; one that
	// nothing is known of is not there.
	free    map[string]int
	refused map[string]refusal
}

type refusal struct {
	at    time.Time
	until time.Time
	times int // in a row
	err   error
}

// forget drops the refusals that say nothing any more.
func (r rooms) forget(now time.Time) {
	maps.DeleteFunc(r.refused, func(_ string, f refusal) bool { return now.Sub(f.at) >= forgetRefusal })
}

// choose returns the first subnet of a pool that is not known to be full; when
// there is none, why each of them is not to be had.
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

// place takes room for one machine in the first subnet of the group's pool that
// has some. With none it fails with provider.ErrSubnetFull, naming the pool and
// each subnet. A group without subnets gets the empty one. The provider's word
// is waited for only at first, and when there seems to be no room: an old word
// that there is costs one refused create at most.
func (s *subnets) place(ctx context.Context, g fleet.Group) (string, error) {
	if len(g.Subnets) == 0 {
		return "", nil
	}
	full := []string{"the provider was not asked yet"}
	for _, last := range []bool{false, true} {
		subnet, why, fresh := s.take(g.Subnets, time.Now())
		if subnet != "" {
			if !fresh {
				s.workers.Go(func() { s.ask(ctx, g) })
			}
			return subnet, nil
		}
		if len(why) > 0 {
			full = why
		}
		if last || fresh {
			break
		}
		s.ask(ctx, g)
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("subnet pool %s: %w: %s", g.SubnetPool, provider.ErrSubnetFull, strings.Join(full, "; "))
}

// take chooses a subnet and counts one address of it as taken. fresh is whether
// asking the provider now would be too soon.
func (s *subnets) take(pool []string, now time.Time) (subnet string, full []string, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh = s.port == nil || (!s.askedAt.IsZero() && now.Sub(s.askedAt) < hintFor)
	if s.askedAt.IsZero() && !fresh {
		return "", nil, false
	}
	subnet, full = s.rooms.choose(pool, now)
	if s.rooms.free[subnet] > 0 {
		s.rooms.free[subnet]--
	}
	return subnet, full, fresh
}

// refuse remembers that a create found no room.
func (s *subnets) refuse(subnet string, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rooms.forget(now)
	r := s.rooms.refused[subnet]
	if !now.Before(r.until) { // else it was asked before that one answered
		r.times++
	}
	r.at, r.until, r.err = now, now.Add(refusalBackoff().Delay(r.times)), err
	s.rooms.refused[subnet] = r
}

// accept forgets refusals where a create was not refused.
func (s *subnets) accept(subnet string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rooms.refused, subnet)
}

// ask asks the provider about the subnets of every group in one call, unless
// the last answer is new; callers meanwhile wait for the same answer. One that
// fails is as good as none: subnets are tried then.
func (s *subnets) ask(ctx context.Context, g fleet.Group) {
	if s.port == nil {
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
	pools := s.pools(g.Subnets)
	asking, cancel := context.WithTimeout(ctx, min(statusTimeout, s.requestTimeout()))
	free, err := s.port.FreeAddresses(asking, pools)
	cancel()
	if err != nil {
		s.log.Warn("free addresses of subnets are not known", slog.Any("error", err))
	}
	for _, subnet := range s.answered(pools, free, err, time.Now()) {
		err := fmt.Errorf("use subnet %s of server.subnet_pools: %w", subnet, provider.ErrNotFound)
		s.fail(ctx, because(ReasonSubnet, err), fleet.GroupKey{}, "")
	}
}

// pools are the subnets of every group, and more, sorted.
func (s *subnets) pools(more []string) []string {
	pools := slices.Clone(more)
	for _, key := range s.cfg.Groups.Keys() {
		g, _ := s.cfg.Groups.Group(key)
		pools = append(pools, g.Subnets...)
	}
	slices.Sort(pools)
	return slices.Compact(pools)
}

// forget drops what is known of subnets that no group has any more, and refusals of
// old.
func (s *subnets) forget(now time.Time) {
	pools := s.pools(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rooms.forget(now)
	maps.DeleteFunc(s.reported, func(subnet string, _ bool) bool {
		_, used := slices.BinarySearch(pools, subnet)
		return !used
	})
}

// answered takes over the provider's word and returns the subnets that are
// newly known not to exist.
func (s *subnets) answered(asked []string, free map[string]int, err error, now time.Time) (missing []string) {
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
