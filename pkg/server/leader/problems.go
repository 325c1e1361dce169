package leader

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/broadcast"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// problems are the last problem of each group, until it is over: an instance of
// the group that was created after it shows that creating works again. A problem
// of the whole shard has the zero key, and is over when it was not reported for
// shardProblemLife. Safe for concurrent use.
type problems struct {
	cfg  Config
	feed broadcast.Feed[fleet.Problem]

	// Set before anybody asks, or anything is reported of a group.
	told    func(fleet.GroupKey)      // called after each report
	gone    func(fleet.GroupKey) bool // whether there is no such group any more
	held    func() fleet.Problem      // why nothing is changed; zero: it is
	lasting func() []fleet.Problem    // of the shard, although nobody reports them again and again

	mu   sync.Mutex
	last map[fleet.GroupKey]fleet.Problem
}

func newProblems(cfg Config) *problems {
	return &problems{cfg: cfg, told: func(fleet.GroupKey) {}, last: map[fleet.GroupKey]fleet.Problem{}}
}

const (
	// shardProblemLife outlasts the pause between two attempts at whatever failed.
	shardProblemLife = 5 * time.Minute
	// filesProblemLife outlasts the pause between two attempts to deliver. A problem
	// that was not told again since then went with the instance that had it.
	filesProblemLife = time.Hour
)

var _ operators.Problems = (*problems)(nil)

// OfGroup implements operators.Problems: it is what holds the whole shard, or the
// last problem of the group or of the shard. What holds the shard names VMs of every
// tenant, so others than the default one are told only that it is so.
func (s *problems) OfGroup(key fleet.GroupKey) (p fleet.Problem, atSize bool) {
	if held := s.held(); held.Message != "" {
		if key.Tenant != fleet.DefaultTenant {
			held.Message = "the shard changes nothing until its administrator has settled a problem"
		}
		return held, false
	}
	now := s.cfg.Now()
	p = s.of(key)
	if p.Message == "" && key.Tenant == fleet.DefaultTenant {
		if p = s.of(fleet.GroupKey{}); now.Sub(p.At) > shardProblemLife {
			p = fleet.Problem{}
		}
	}
	return p, p.Reason == delivery.ReasonFiles && now.Sub(p.At) < filesProblemLife
}

// Follow implements operators.Problems. Those that last come first: those of the
// shard by the word of others, and those that were reported and are not over. What
// concerns the shard may name anybody's machines, so it is for tenant default alone.
func (s *problems) Follow(tenant string) *broadcast.Reader[fleet.Problem] {
	s.prune() // an attempt for a group that is no more may have failed since
	var lasting []fleet.Problem
	if tenant == fleet.DefaultTenant {
		lasting = s.lasting()
	}
	now := s.cfg.Now()
	mine := func(p fleet.Problem) bool {
		return p.Group.Tenant == tenant || p.Group == (fleet.GroupKey{}) && tenant == fleet.DefaultTenant
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := lasting
	for _, p := range s.last {
		ofShard := p.Group == (fleet.GroupKey{})
		known := func(q fleet.Problem) bool { return ofShard && q.Reason == p.Reason }
		over := ofShard && now.Sub(p.At) > shardProblemLife
		if mine(p) && !over && !slices.ContainsFunc(lasting, known) {
			first = append(first, p)
		}
	}
	slices.SortStableFunc(first, func(a, b fleet.Problem) int { return a.At.Compare(b.At) })
	return s.feed.Subscribe(mine, first, operators.MaxPendingProblems)
}

// report logs a problem and keeps it for those who ask.
func (s *problems) report(p fleet.Problem) {
	attrs := []any{slog.String("reason", p.Reason), slog.String("problem", p.Message)}
	if p.Group != (fleet.GroupKey{}) {
		attrs = append(attrs, slog.String("group", p.Group.String()))
	}
	if p.Instance != "" {
		attrs = append(attrs, slog.String("instance", string(p.Instance)))
	}
	s.cfg.Logger.Warn("problem", attrs...)
	defer s.told(p.Group)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[p.Group] = p
	s.feed.Publish(p)
}

// of returns the group's last problem; none is the zero value.
func (s *problems) of(key fleet.GroupKey) fleet.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[key]
}

// drop forgets the last problem of a group if it is one of those that are over, and
// reports whether it did.
func (s *problems) drop(key fleet.GroupKey, over func(fleet.Problem) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.last[key]
	if ok = ok && over(p); ok {
		delete(s.last, key)
	}
	return ok
}

// solved notes that a group has no problem of a reason any more.
func (s *problems) solved(key fleet.GroupKey, reason string) {
	if s.drop(key, func(p fleet.Problem) bool { return p.Reason == reason }) {
		s.told(key)
	}
}

// over notes that the shard has no problem of a reason any more.
func (s *problems) over(reason string) { s.solved(fleet.GroupKey{}, reason) }

// delivered notes that a group's files get through again.
func (s *problems) delivered(key fleet.GroupKey) {
	if s.drop(key, func(p fleet.Problem) bool {
		return p.Reason == delivery.ReasonFiles || p.Reason == delivery.ReasonStorage && p.Instance == ""
	}) {
		s.told(key)
	}
}

// progress notes that an instance of the group changed.
func (s *problems) progress(key fleet.GroupKey, i fleet.Instance) {
	works, ended := i.Provider.ID != "" && i.Phase.Active(), i.Phase == fleet.Deleted
	attempted := i.CreatedAt
	if i.Provider.CreateAttemptedAt != nil {
		attempted = *i.Provider.CreateAttemptedAt
	}
	s.drop(key, func(p fleet.Problem) bool {
		return (works || ended) && p.Reason != reconcile.ReasonLoadBalancer && p.Reason != delivery.ReasonFiles &&
			(p.Instance == i.ID || works && attempted.After(p.At))
	})
}

// mended drops the problems with definitions of dynamic groups that are none any
// more.
func (s *problems) mended(still config.Problems) {
	wrong := map[fleet.GroupKey]bool{}
	for _, p := range still {
		wrong[groupIn(p.Path)] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.last, func(key fleet.GroupKey, p fleet.Problem) bool { return p.Reason == ReasonGroups && !wrong[key] })
}

// mendedOf does so for one group.
func (s *problems) mendedOf(key fleet.GroupKey, still bool) {
	if !still {
		s.drop(key, func(p fleet.Problem) bool { return p.Reason == ReasonGroups })
	}
}

// groupIn is the group that a field belongs to, such as groups.prod.web.size; zero
// when it belongs to none.
func groupIn(path string) fleet.GroupKey {
	parts := strings.SplitN(path, ".", 4)
	if len(parts) < 3 || parts[0] != "groups" || fleet.CheckName(parts[1]) != nil || fleet.CheckName(parts[2]) != nil {
		return fleet.GroupKey{}
	}
	return fleet.GroupKey{Tenant: parts[1], Name: parts[2]}
}

// prune drops the problems of the groups that are no more.
func (s *problems) prune() {
	s.mu.Lock()
	keys := slices.Collect(maps.Keys(s.last))
	s.mu.Unlock()
	for _, key := range keys {
		s.pruneOf(key)
	}
}

// pruneOf drops the problem of a group if that is no more.
func (s *problems) pruneOf(key fleet.GroupKey) {
	if key != (fleet.GroupKey{}) && s.of(key).Message != "" && s.gone(key) {
		s.drop(key, func(fleet.Problem) bool { return true })
	}
}
