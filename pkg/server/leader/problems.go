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
// shardProblemLife. Problems whose end the loop knows are not among them: any number
// of those may last beside each other. Safe for concurrent use.
type problems struct {
	cfg  Config
	feed broadcast.Feed[fleet.Problem]

	// Set before anybody asks, or anything is reported of a group.
	told    func(fleet.GroupKey)                 // called after each report
	gone    func(fleet.GroupKey) bool            // whether there is no such group any more
	held    func() fleet.Problem                 // why nothing is changed; zero: it is
	lasting func() []fleet.Problem               // of the shard, although nobody reports them again and again
	known   func() []fleet.Problem               // those whose end the loop knows
	knownOf func(fleet.GroupKey) []fleet.Problem // those of a group; without a key, of the shard

	mu       sync.Mutex
	last     map[fleet.GroupKey]fleet.Problem
	shared   map[fleet.InstanceID]fleet.Problem // of instances whose identity two machines have
	standing standing
}

func newProblems(cfg Config) *problems {
	return &problems{
		cfg: cfg, told: func(fleet.GroupKey) {}, last: map[fleet.GroupKey]fleet.Problem{},
		shared: map[fleet.InstanceID]fleet.Problem{}, standing: standing{},
	}
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
	if known := s.knownFirst(key); known.Message != "" && !known.At.Before(p.At) {
		p = known // such as failing creates, after the first that failed
	}
	if p.Message == "" && key.Tenant == fleet.DefaultTenant {
		if p = s.of(fleet.GroupKey{}); now.Sub(p.At) > shardProblemLife {
			p = fleet.Problem{}
		}
	}
	if p.Message == "" {
		p = s.throttled(key)
	}
	return p, p.Reason == delivery.ReasonFiles && now.Sub(p.At) < filesProblemLife
}

// knownFirst is the first of a group's problems whose end the loop knows, but for
// creates that fail, which are a condition of their own.
func (s *problems) knownFirst(key fleet.GroupKey) fleet.Problem {
	for _, p := range s.knownOf(key) {
		if p.Reason != reconcile.ReasonCreatesFailing {
			return p
		}
	}
	return fleet.Problem{}
}

// throttled is what groups wait for while the provider throttles the shard. Its words
// are for the administrator.
func (s *problems) throttled(key fleet.GroupKey) fleet.Problem {
	p := s.knownFirst(fleet.GroupKey{})
	if p.Message != "" && key.Tenant != fleet.DefaultTenant {
		p.Message = "the provider refuses calls of the shard for their number"
	}
	return p
}

// Follow implements operators.Problems. Those that last come first: by the word of
// others, and those that were reported and are not over. What concerns the shard may
// name anybody's machines, so it is for tenant default alone.
func (s *problems) Follow(tenant string) *broadcast.Reader[fleet.Problem] {
	s.prune() // an attempt for a group that is no more may have failed since
	var first []fleet.Problem
	if tenant == fleet.DefaultTenant {
		first = s.lasting()
	}
	now := s.cfg.Now()
	mine := func(p fleet.Problem) bool {
		return p.Group.Tenant == tenant || p.Group == (fleet.GroupKey{}) && tenant == fleet.DefaultTenant
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lasting := first
	// One that begins is known before it is reported: it is among these, or follows. The
	// loop may not have looked yet at a group that is no more.
	first = append(first, slices.DeleteFunc(s.known(), func(p fleet.Problem) bool {
		return !mine(p) || p.Group != (fleet.GroupKey{}) && s.gone(p.Group)
	})...)
	for _, p := range s.shared {
		if mine(p) && s.last[p.Group] != p {
			first = append(first, p)
		}
	}
	for _, p := range s.last {
		ofShard := p.Group == (fleet.GroupKey{})
		same := func(q fleet.Problem) bool { return ofShard && q.Reason == p.Reason }
		over := ofShard && now.Sub(p.At) > shardProblemLife
		if mine(p) && !over && !slices.ContainsFunc(lasting, same) {
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
	if !reconcile.Lasts(p.Reason) {
		s.last[p.Group] = p
	}
	if p.Reason == ReasonIdentityShared {
		s.shared[p.Instance] = p
	}
	s.standing.add(p)
	s.feed.Publish(p)
}

// of returns the group's last problem; none is the zero value.
func (s *problems) of(key fleet.GroupKey) fleet.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[key]
}

// ofInstance returns the problem that an instance has for as long as it lasts; none is the
// zero value.
func (s *problems) ofInstance(id fleet.InstanceID) fleet.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shared[id]
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
	dropped := s.drop(key, func(p fleet.Problem) bool { return p.Reason == reason })
	ended := s.end(func(x subject) bool { return x.group == key && x.reason == reason })
	if dropped || ended {
		s.told(key)
	}
}

// solvedOf is solved, of one instance of the group.
func (s *problems) solvedOf(key fleet.GroupKey, id fleet.InstanceID, reason string) {
	dropped := s.drop(key, func(p fleet.Problem) bool { return p.Reason == reason && p.Instance == id })
	ended := s.end(func(x subject) bool { return x.instance == id && x.reason == reason })
	if dropped || ended {
		s.told(key)
	}
}

// over notes that the shard has no problem of a reason any more.
func (s *problems) over(reason string) { s.solved(fleet.GroupKey{}, reason) }

// delivered notes that a group's files get through again.
func (s *problems) delivered(key fleet.GroupKey) {
	s.end(func(x subject) bool { return x.group == key && x.reason == delivery.ReasonFiles })
	if s.drop(key, func(p fleet.Problem) bool {
		return p.Reason == delivery.ReasonFiles || p.Reason == delivery.ReasonStorage && p.Instance == ""
	}) {
		s.told(key)
	}
}

// progress notes that an instance of the group changed.
func (s *problems) progress(key fleet.GroupKey, i fleet.Instance) {
	if i.Phase == fleet.Deleted {
		s.end(func(x subject) bool { return x.instance == i.ID })
		s.drop(key, func(p fleet.Problem) bool { return p.Instance == i.ID })
	}
	works, ended := i.Provider.ID != "" && i.Phase.Active(), i.Phase == fleet.Deleted
	attempted := i.CreatedAt
	if i.Provider.CreateAttemptedAt != nil {
		attempted = *i.Provider.CreateAttemptedAt
	}
	s.drop(key, func(p fleet.Problem) bool {
		return (works || ended) && !lasts(p.Reason) && (p.Instance == i.ID || works && attempted.After(p.At))
	})
}

// mended drops the problems with definitions of dynamic groups that are none any
// more.
func (s *problems) mended(still config.Problems) {
	wrong := map[fleet.GroupKey]bool{}
	for _, p := range still {
		wrong[groupIn(p.Path)] = true
	}
	s.end(func(x subject) bool { return x.reason == ReasonGroups && !wrong[x.group] })
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.last, func(key fleet.GroupKey, p fleet.Problem) bool { return p.Reason == ReasonGroups && !wrong[key] })
}

// mendedOf does so for one group.
func (s *problems) mendedOf(key fleet.GroupKey, still bool) {
	if !still {
		s.end(func(x subject) bool { return x.group == key && x.reason == ReasonGroups })
		s.drop(key, func(p fleet.Problem) bool { return p.Reason == ReasonGroups })
	}
}

// returned drops the problem that a group's record is missing of those of which it is
// not any more.
func (s *problems) returned(missing func(fleet.GroupKey) bool) {
	s.mu.Lock()
	keys := map[fleet.GroupKey]bool{}
	for x := range s.standing {
		if x.reason == ReasonRecordMissing {
			keys[x.group] = true
		}
	}
	s.mu.Unlock()
	for key := range keys {
		if !missing(key) {
			s.solved(key, ReasonRecordMissing)
		}
	}
}

// stands reports whether a problem of a group is known.
func (s *problems) stands(key fleet.GroupKey, reason string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.standing[subject{group: key, reason: reason}]
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
	keys := map[fleet.GroupKey]bool{}
	for key := range s.last {
		keys[key] = true
	}
	for x := range s.standing {
		keys[x.group] = true
	}
	s.mu.Unlock()
	s.dropGone(slices.Collect(maps.Keys(keys))...)
}

// pruneOf drops the problem of a group if that is no more.
func (s *problems) pruneOf(key fleet.GroupKey) {
	if s.has(key) {
		s.dropGone(key)
	}
}

// dropGone drops the problems of those of the groups that are no more.
func (s *problems) dropGone(keys ...fleet.GroupKey) {
	gone := map[fleet.GroupKey]bool{}
	for _, key := range keys {
		if key != (fleet.GroupKey{}) && s.gone(key) {
			gone[key] = true
			s.drop(key, func(fleet.Problem) bool { return true })
		}
	}
	if len(gone) > 0 {
		s.end(func(x subject) bool { return gone[x.group] })
	}
}

// has reports whether there is any problem of a group.
func (s *problems) has(key fleet.GroupKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.standing {
		if x.group == key {
			return true
		}
	}
	return s.last[key].Message != ""
}
