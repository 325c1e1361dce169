package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// ReasonCreatesFailing is the reason of the problem that the creates of a group fail.
const ReasonCreatesFailing = "CreatesFailing"

// The reasons of failed creates beside those of problems.
const (
	ReasonNotRegistered = "NotRegistered" // the agent did not register in time
	ReasonSilent        = "AgentSilent"   // it registered, and fell silent
)

// pacing keeps what became of each group's creates, and bounds the next ones by it.
// It is safe for concurrent use, and calls no other part while it holds mu.
type pacing struct {
	*term
	telling sync.Mutex // held while something changes and is told, so that it is told in order

	mu     sync.Mutex
	groups map[fleet.GroupKey]*paced
}

// paced is one group's streak, and the words in which it was told.
type paced struct {
	streak
	told    string
	problem fleet.Problem // as it was told last
}

func newPacing(t *term) *pacing { return &pacing{term: t, groups: map[fleet.GroupKey]*paced{}} }

// pace is what a group's creates are bound to.
func (p *pacing) pace(g fleet.Group) plan.Pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.groups[g.Key]; s != nil && s.infra == g.Hashes.Infra {
		return s.pace()
	}
	return plan.Pace{}
}

// isPace reports whether a view has the pace that its group is bound to now.
func (p *pacing) isPace(v plan.View) bool {
	now := p.pace(v.Group)
	return now.NotBefore.Equal(v.Pace.NotBefore) && now.Trials == v.Pace.Trials && now.Settling == v.Pace.Settling && now.Proof == v.Pace.Proof
}

// failing reports whether a group's creates fail.
func (p *pacing) failing(key fleet.GroupKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.groups[key]
	return s != nil && s.failing()
}

// CreatesFailing says whether the creates of a group fail, and how.
func (l *Loop) CreatesFailing(key fleet.GroupKey) (fleet.CreatesFailing, bool) {
	l.pacing.mu.Lock()
	defer l.pacing.mu.Unlock()
	if s := l.pacing.groups[key]; s != nil {
		return s.condition(time.Now())
	}
	return fleet.CreatesFailing{}, false
}

// change changes what is known of a group's creates, and tells when they begin to
// fail, fail for another reason, or fail no more. With another infra hash the group
// starts afresh.
func (p *pacing) change(g fleet.Group, by func(*streak)) {
	p.telling.Lock()
	defer p.telling.Unlock()
	p.mu.Lock()
	s := p.groups[g.Key]
	if s == nil {
		s = &paced{streak: streak{infra: g.Hashes.Infra}}
		p.groups[g.Key] = s
	}
	was, told := s.failing(), s.told
	if s.infra != g.Hashes.Infra {
		*s = paced{streak: streak{infra: g.Hashes.Infra}}
	}
	by(&s.streak)
	s.told = ""
	if s.blank() {
		delete(p.groups, g.Key)
	}
	is, last := s.failing(), s.last
	if is {
		s.told = last.reason + strings.ReplaceAll(last.message, string(last.id), "") // each probe has another id
	}
	news := s.told != told
	if is && news {
		message := fmt.Sprintf("creates fail (%s): %s", last.reason, last.message)
		s.problem = fleet.Problem{At: last.at, Reason: ReasonCreatesFailing, Message: message, Group: g.Key}
	}
	problem := s.problem
	p.mu.Unlock()
	p.tell(problem, g.Key, was, is, news)
}

func (p *pacing) tell(problem fleet.Problem, key fleet.GroupKey, was, is, news bool) {
	switch {
	case is && news:
		p.report(&problem)
	case was && !is:
		p.solved(key, ReasonCreatesFailing)
	}
	if was != is {
		p.cfg.Changed(key, "")
	}
}

// problems are those of a group that its creates fail: none, or one.
func (p *pacing) problems(key fleet.GroupKey) []fleet.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.groups[key]; s != nil && s.failing() {
		return []fleet.Problem{s.problem}
	}
	return nil
}

// failed are the groups whose creates fail.
func (p *pacing) failed() (keys []fleet.GroupKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.groups {
		if s.failing() {
			keys = append(keys, key)
		}
	}
	return keys
}

// renew drops what is known of a group's creates if its infra hash is another now.
func (p *pacing) renew(g fleet.Group) {
	p.mu.Lock()
	s := p.groups[g.Key]
	same := s == nil || s.infra == g.Hashes.Infra
	p.mu.Unlock()
	if !same {
		p.change(g, func(*streak) {})
	}
}

// content takes over that a group has all that it wants, so that none of its creates
// fails any more: fewer are wanted, or machines were made after all of which no answer
// came.
func (p *pacing) content(g fleet.Group) {
	if p.failing(g.Key) {
		p.change(g, func(s *streak) { *s = streak{infra: s.infra} })
	}
}

// drop forgets a group that is no more, or of which nothing is wanted.
func (p *pacing) drop(key fleet.GroupKey) {
	p.telling.Lock()
	defer p.telling.Unlock()
	p.mu.Lock()
	s := p.groups[key]
	delete(p.groups, key)
	p.mu.Unlock()
	if s != nil && s.failing() {
		p.solved(key, ReasonCreatesFailing)
		p.cfg.Changed(key, "")
	}
}

// refused takes over that a create of an instance of a group, which began at a moment,
// made nothing, as far as is known, and reports whether it counts as a failure that a
// streak tells of. What an on-demand instance comes to says nothing about the group's
// creates: it may have been asked for with another instance type. Nor does the
// store's failure, or a provider that is asked too often.
func (p *pacing) refused(x *launch, err error, now time.Time) (told bool) {
	if x.record.OnDemand || !p.countsAsRefusal(err) {
		return false
	}
	g, isPresent := p.groupOf(x)
	if !isPresent {
		return false
	}
	f := failedCreate{id: x.record.ID, began: x.began, at: now, reason: ReasonProvider, message: words(err)}
	if r := (*reasoned)(nil); errors.As(err, &r) {
		f.reason = r.reason
	}
	p.change(g, func(s *streak) {
		s.fail([]failedCreate{f}, nil, p.backoff)
		told = s.failing()
	})
	return told
}

func (p *pacing) countsAsRefusal(err error) bool {
	switch r := (*reasoned)(nil); {
	case err == nil, errors.Is(err, provider.ErrThrottled), errors.Is(err, context.Canceled), p.cfg.NotLeader != nil && p.cfg.NotLeader(err):
		return false
	case provider.Definite(err):
		return true
	default:
		return !errors.As(err, &r) || r.reason != ReasonStorage
	}
}

// accepted takes over that the provider accepted a create.
func (p *pacing) accepted(x *launch) {
	if g, isPresent := p.groupOf(x); isPresent && !x.record.OnDemand {
		p.change(g, func(s *streak) { s.accept(x.record.ID, x.began, g.Size) })
	}
}

// groupOf is the group of a create as it is wanted now, and whether the create is of
// its present infra hash.
func (p *pacing) groupOf(x *launch) (g fleet.Group, isPresent bool) {
	g, _ = p.cfg.Groups.Group(x.group.Key)
	g.Key = x.group.Key
	made := x.group.Hashes
	if x.record.ID != "" {
		made = x.record.Hashes
	}
	return g, made.Infra == g.Hashes.Infra
}

// awaitsSurvivors reports whether a group's creates are paced until instances have lived
// for a while.
func (p *pacing) awaitsSurvivors(g fleet.Group) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.groups[g.Key]
	return s != nil && s.infra == g.Hashes.Infra && s.settling
}

// survive records which instances of a group live, and returns when they will have lived
// long enough to say more about its creates; zero: never, as it looks now.
func (p *pacing) survive(g fleet.Group, living []plan.Life, now time.Time) (next time.Time) {
	settings := p.cfg.Groups.Settings()
	p.change(g, func(s *streak) { next = s.survive(living, settings, g.Size, now) })
	return next
}

// cameToNothing records that instances of a group end that have not settled, one at
// least, beside others that live.
func (p *pacing) cameToNothing(g fleet.Group, failed []failedCreate, living []plan.Life) {
	p.change(g, func(s *streak) { s.fail(failed, living, p.backoff) })
}
