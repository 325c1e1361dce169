// Package problems is what a term knows to be wrong: one set, which every part of the server
// reports to and which conditions, watches and logs are made from.
//
// A problem that lasts (fleet.Problem.Lasts) is identified by its Subject, and stays in the set
// until it is cleared, which is an event too. Any other problem is a single event: the set keeps
// the last one of each group, and of the shard, until something shows that it is over.
package problems

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/broadcast"
)

// Subject identifies a problem that lasts: another report with the same one is the same problem.
// Without a group it concerns the shard.
type Subject struct {
	Group    fleet.GroupKey
	Instance fleet.InstanceID
	Reason   string
}

func subjectOf(p fleet.Problem) Subject { return Subject{p.Group, p.Instance, p.Reason} }

func (s Subject) compare(o Subject) int {
	return cmp.Or(s.Group.Compare(o.Group), cmp.Compare(s.Reason, o.Reason), cmp.Compare(s.Instance, o.Instance))
}

// Config configures a Set. All fields are required.
type Config struct {
	Now    func() time.Time
	Logger *slog.Logger
	// Changed is called after a report about a group, or the shard (the zero key), and after a
	// problem of it was cleared. It must not block, and may be called by several goroutines.
	Changed func(fleet.GroupKey)
}

// Set is the problems of one term. Safe for concurrent use.
type Set struct {
	cfg  Config
	feed broadcast.Feed[fleet.Problem]

	mu      sync.Mutex
	lasting map[fleet.GroupKey]map[Subject]fleet.Problem
	events  map[fleet.GroupKey]fleet.Problem // the last one
}

// New returns an empty set.
func New(cfg Config) *Set {
	return &Set{cfg: cfg, lasting: map[fleet.GroupKey]map[Subject]fleet.Problem{}, events: map[fleet.GroupKey]fleet.Problem{}}
}

// Set adds a problem, or replaces the one of the same subject. It logs and publishes it.
func (s *Set) Set(p fleet.Problem) {
	attrs := []any{slog.String("reason", p.Reason), slog.String("problem", p.Message)}
	if p.Group != (fleet.GroupKey{}) {
		attrs = append(attrs, slog.String("group", p.Group.String()))
	}
	if p.Instance != "" {
		attrs = append(attrs, slog.String("instance", string(p.Instance)))
	}
	s.cfg.Logger.Warn("problem", attrs...)
	s.add(p)
	s.cfg.Changed(p.Group)
}

func (s *Set) add(p fleet.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.Lasts {
		s.events[p.Group] = p
	} else {
		if s.lasting[p.Group] == nil {
			s.lasting[p.Group] = map[Subject]fleet.Problem{}
		}
		s.lasting[p.Group][subjectOf(p)] = p
	}
	s.feed.Publish(p)
}

// Clear ends the problems of a reason of a group, or with the zero key of the shard: that of one
// instance, or all if id is empty. Its last event is dropped too if it is one of them.
func (s *Set) Clear(key fleet.GroupKey, id fleet.InstanceID, reason string) {
	matches := func(x Subject) bool { return x.Reason == reason && (id == "" || x.Instance == id) }
	cleared := s.clear(matches, key)
	dropped := s.DropEvent(key, func(p fleet.Problem) bool { return matches(subjectOf(p)) })
	if cleared || dropped {
		s.cfg.Changed(key)
	}
}

// ClearGroup ends the lasting problems of a group that match, without a call of Changed.
func (s *Set) ClearGroup(key fleet.GroupKey, matches func(Subject) bool) { s.clear(matches, key) }

// ClearAll ends the lasting problems of all groups and of the shard that match, without a call of
// Changed.
func (s *Set) ClearAll(matches func(Subject) bool) {
	s.mu.Lock()
	keys := slices.Collect(maps.Keys(s.lasting))
	s.mu.Unlock()
	s.clear(matches, keys...)
}

// clear publishes the end of the lasting problems of some groups that match, and reports whether
// there were any.
func (s *Set) clear(matches func(Subject) bool, keys ...fleet.GroupKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []Subject
	for _, key := range keys {
		for x := range s.lasting[key] {
			if matches(x) {
				ended = append(ended, x)
			}
		}
	}
	slices.SortFunc(ended, Subject.compare)
	now := s.cfg.Now()
	for _, x := range ended {
		if delete(s.lasting[x.Group], x); len(s.lasting[x.Group]) == 0 {
			delete(s.lasting, x.Group)
		}
		s.feed.Publish(fleet.Problem{At: now, Reason: x.Reason, Group: x.Group, Instance: x.Instance, Lasts: true, Over: true})
	}
	return len(ended) > 0
}

// DropEvent forgets the last event of a group if it is over, and reports whether it did.
func (s *Set) DropEvent(key fleet.GroupKey, over func(fleet.Problem) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.events[key]
	if ok = ok && over(p); ok {
		delete(s.events, key)
	}
	return ok
}

// Drop ends all problems of a group that is gone.
func (s *Set) Drop(key fleet.GroupKey) {
	s.clear(func(Subject) bool { return true }, key)
	s.DropEvent(key, func(fleet.Problem) bool { return true })
}
