// Package pacing limits the creates of each group by the outcomes of its earlier ones: once too many
// creates were refused, or too many instances ended early, creates go through a window, which
// doubles with each success and halves with each failure (docs/lifecycle.md).
//
// Decisions depend only on the arguments: times, sizes and lives go in, a pace and news come out.
// The windows of outcomes are rebuilt from the records when a term begins.
package pacing

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
)

// Pacer holds the outcomes of the creates of all groups. It is safe for concurrent use.
type Pacer struct {
	wait func(n int) time.Duration
	tell func(News)

	telling sync.Mutex // held during a change and its news, so that news are in order
	mu      sync.Mutex // guards groups, and is held for no call
	groups  map[fleet.GroupKey]*group
}

// group is one group's failure window, with the last news.
type group struct {
	failureWindow
	told string // identifies the last problem, without the instance id
}

// News is a change of whether, or why, the creates of a group fail.
type News struct {
	Group        fleet.GroupKey
	Problem      *fleet.Problem // creates fail, or fail for another reason; nil: neither
	Began, Ended bool           // creates begin to fail, or no longer do
}

// New returns a Pacer without outcomes. wait draws the back-off after n failures in a row; tell
// is called with changes, one at a time; it may read the Pacer, and must not change it.
func New(wait func(n int) time.Duration, tell func(News)) *Pacer {
	return &Pacer{wait: wait, tell: tell, groups: map[fleet.GroupKey]*group{}}
}

// At returns the limits of a group's creates now, and when they may change without an event;
// zero: never. living returns the group's living instances, if that is needed. Outcomes of
// another Infra hash no longer count.
func (p *Pacer) At(g fleet.Group, living func() []plan.Life, settings plan.Settings, now time.Time) (pace plan.Pace, again time.Time) {
	p.mu.Lock()
	s := p.groups[g.Key]
	isOther := s != nil && s.infra != g.Hashes.Infra
	settling := s != nil && !isOther && s.settling
	p.mu.Unlock()
	switch {
	case isOther:
		p.change(g, func(*failureWindow) {})
	case settling:
		lives := living()
		p.change(g, func(s *failureWindow) { again = s.survive(lives, settings, g.Size, now) })
	}
	return p.Pace(g), again
}

// Pace returns the limits of a group's creates by what is recorded.
func (p *Pacer) Pace(g fleet.Group) plan.Pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.groups[g.Key]; s != nil && s.infra == g.Hashes.Infra {
		return s.pace()
	}
	return plan.Pace{}
}

// Failing reports whether a group's creates fail.
func (p *Pacer) Failing(key fleet.GroupKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.groups[key]
	return s != nil && s.failing()
}

// Condition reports whether the creates of a group fail, with details.
func (p *Pacer) Condition(key fleet.GroupKey, now time.Time) (fleet.CreatesFailing, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.groups[key]; s != nil {
		return s.condition(now)
	}
	return fleet.CreatesFailing{}, false
}

// Groups returns the groups whose creates fail.
func (p *Pacer) Groups() (keys []fleet.GroupKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.groups {
		if s.failing() {
			keys = append(keys, key)
		}
	}
	return keys
}

// Entries returns the number of groups with outcomes.
func (p *Pacer) Entries() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.groups)
}

// Refused records a create that the provider refused, and reports whether the group's creates
// fail, so that their problem covers this one.
func (p *Pacer) Refused(g fleet.Group, f Failure) (told bool) {
	p.change(g, func(s *failureWindow) {
		s.fail([]Failure{f}, scene{wait: p.wait})
		told = s.failing()
	})
	return told
}

// Accepted records that the provider accepted the create of an instance, which began at the
// given time.
func (p *Pacer) Accepted(g fleet.Group, id fleet.InstanceID, began time.Time) {
	p.change(g, func(s *failureWindow) { s.accept(id, began, g.Size) })
}

// Died records at least one instance that failed before it settled. living returns the living
// instances, if that is needed.
func (p *Pacer) Died(g fleet.Group, failed []Failure, settings plan.Settings, living func() []plan.Life) {
	p.change(g, func(s *failureWindow) { s.fail(failed, scene{g.Size, settings.Settle, living, p.wait}) })
}

// Done records instances that ended as they had announced.
func (p *Pacer) Done(g fleet.Group, ids []fleet.InstanceID, at time.Time) {
	p.change(g, func(s *failureWindow) {
		for _, id := range ids {
			s.done(id, at, g.Size)
		}
	})
}

// Converged ends the window of a converged group, of which all instances have settled: whatever
// failed before is made good.
func (p *Pacer) Converged(g fleet.Group) {
	p.change(g, func(s *failureWindow) { *s = failureWindow{infra: s.infra} })
}

// Drop forgets a group that is gone or has size zero.
func (p *Pacer) Drop(key fleet.GroupKey) {
	p.telling.Lock()
	defer p.telling.Unlock()
	p.mu.Lock()
	s := p.groups[key]
	delete(p.groups, key)
	p.mu.Unlock()
	if s != nil && s.failing() {
		p.tell(News{Group: key, Ended: true})
	}
}

// change changes a group's failure window, and tells when creates begin to fail, fail for
// another reason, or stop failing. If the Infra hash differs, the window is reset first.
func (p *Pacer) change(g fleet.Group, by func(*failureWindow)) {
	p.telling.Lock()
	defer p.telling.Unlock()
	if n := p.changed(g, by); n.Problem != nil || n.Began || n.Ended {
		p.tell(n)
	}
}

func (p *Pacer) changed(g fleet.Group, by func(*failureWindow)) News {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.groups[g.Key]
	if s == nil {
		s = &group{failureWindow: failureWindow{infra: g.Hashes.Infra}}
		p.groups[g.Key] = s
	}
	was, told := s.failing(), s.told
	if s.infra != g.Hashes.Infra {
		*s = group{failureWindow: failureWindow{infra: g.Hashes.Infra}}
	}
	by(&s.failureWindow)
	s.told = ""
	if s.blank() {
		delete(p.groups, g.Key)
	}
	is, last := s.failing(), s.last
	n := News{Group: g.Key, Began: !was && is, Ended: was && !is}
	if is {
		s.told = last.Reason + strings.ReplaceAll(last.Message, string(last.ID), "") // without the id, which differs per probe
	}
	if is && s.told != told {
		message := fmt.Sprintf("creates fail (%s): %s", last.Reason, last.Message+last.Details)
		n.Problem = &fleet.Problem{Reason: problems.ReasonCreatesFailing, Message: message, Group: g.Key, Lasts: true}
	}
	return n
}
