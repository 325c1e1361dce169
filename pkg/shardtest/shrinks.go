package shardtest

import (
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// shrinks checks that a group becomes smaller by request only. Guarded by book.mu.
type shrinks struct {
	book     *book
	asked    map[fleet.GroupKey]time.Time // when a call about a group was last made
	accepted map[string]time.Time         // by name of the removed group: when a refresh last accepted it
}

func newShrinks(b *book) *shrinks {
	return &shrinks{book: b, asked: map[fleet.GroupKey]time.Time{}, accepted: map[string]time.Time{}}
}

// acceptance is how long after it was sent a call that accepts removals may take effect: the
// leader may still handle it when its caller has given up.
const acceptance = 5 * time.Minute

// accepts records which removals a refresh is about to accept.
func (s *shrinks) accepts(groups []string) {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	for _, g := range groups {
		s.accepted[g] = time.Now()
	}
}

// asks records that a call about a group is about to be made: what the group loses from now on may
// be by request.
func (s *shrinks) asks(key fleet.GroupKey) {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	s.asked[key] = time.Now()
	s.book.texts.release(key)
}

// judgeConfig checks that a leader of an epoch accepts a config that removes a group with instances,
// sets its size to 0, or no longer sets it, only if a refresh or the config named it; no takeover
// does. The caller holds the lock.
func (s *shrinks) judgeConfig(last, next *config.Shard, epoch uint64, sent time.Time) {
	if last == nil {
		return
	}
	b := s.book
	before, _ := last.Resolve(b.groups)
	after, _ := next.Resolve(b.groups)
	living := map[fleet.GroupKey]int{}
	for _, i := range b.records {
		if i.Phase.Active() && !i.OnDemand && !s.isJustRecorded(i, sent) && !leftBehind(i, epoch) {
			living[i.GroupKey()]++
		}
	}
	for key, n := range living {
		if !b.hands.spoilt[key] && loses(before[key], after[key], n) && !s.isAccepted(key) && !confirmed(last, next, key) {
			b.violate("a config was accepted that removes %d instances of group %s, which no refresh named", n, key)
		}
	}
}

// isJustRecorded reports whether an instance may have been first recorded after a leader decided about a
// config: it does so before it writes records, which may take as long as a request, and sends the config
// last.
func (s *shrinks) isJustRecorded(i fleet.Instance, sent time.Time) bool {
	return s.book.landed[i.ID].After(sent.Add(-storeTimeout))
}

// leftBehind reports whether an earlier leader recorded an instance and made no machine for it: a listing
// may lack its record, and nothing else names it.
func leftBehind(i fleet.Instance, epoch uint64) bool { return i.Epoch < epoch && i.Provider.ID == "" }

// loses reports whether a config takes away a group of n instances, its size, or that a size is
// set, without an error that holds the group.
func loses(was, is fleet.Group, n int) bool {
	if was.Size == 0 || was.Removed || is.Disabled != "" {
		return false
	}
	return is.Size == 0 || is.Removed || is.SizeUnset && !was.SizeUnset && is.Size < min(n, was.Size)
}

// isAccepted reports whether a refresh that named the group may just take effect.
func (s *shrinks) isAccepted(key fleet.GroupKey) bool {
	at, named := s.accepted[key.String()]
	return named && time.Since(at) < acceptance
}

// confirmed reports whether a config lists a group as removed, and the one before did not.
func confirmed(last, next *config.Shard, key fleet.GroupKey) bool {
	return slices.Contains(next.Removed, key.String()) && !slices.Contains(last.Removed, key.String())
}

// judgeRecord checks that a server writes a record that removes a group, or sets a size below the
// number of its settled instances, only after a call about the group, or for a config that takes
// it away: no older version, and no loss of the record, is a reason. A record that holds the group has
// a size for the instances that its leader knows, and removes none. The caller holds the lock.
func (s *shrinks) judgeRecord(key fleet.GroupKey, r config.GroupRecord) {
	b := s.book
	if b.applied == nil || time.Since(s.asked[key]) < acceptance || s.takesAway(key) {
		return
	}
	was, defined, _ := b.applied.ResolveGroup(key, b.groups[key])
	is, stays, _ := b.applied.ResolveGroup(key, r)
	if !defined || was.Removed || is.Disabled != "" {
		return
	}
	size := is.Size
	if !stays || is.Removed {
		size = 0
	}
	known := func(i fleet.Instance) bool { return !r.Missing || !b.unlisted(i) }
	if healthy := b.healthy(key, known); size < min(was.Size, healthy) {
		b.violate("the record of group %s takes its size from %d to %d without a call, and %d instances have settled",
			key, was.Size, size, healthy)
	}
}

// takesAway reports whether the config in the store does not define a group that the accepted one
// defines, or a manual change of applied/, which the next leader compares with: an acceptance writes that
// into the record first.
func (s *shrinks) takesAway(key fleet.GroupKey) bool {
	b := s.book
	if b.static == nil {
		return false
	}
	defines := func(shard *config.Shard) bool {
		if shard == nil {
			return false
		}
		_, static := shard.Static(key)
		return static
	}
	return (defines(b.applied) || defines(b.texts.instead)) && !defines(b.static)
}

// healthy counts the members of a group that have settled, are not about to leave, and satisfy a
// condition.
func (b *book) healthy(key fleet.GroupKey, is func(fleet.Instance) bool) (n int) {
	for _, i := range b.records {
		stays := i.RemovalAskedAt == nil && !b.doomed[i.ID] && b.pace.settled(i, time.Now())
		if !i.OnDemand && i.GroupKey() == key && stays && is(i) {
			n++
		}
	}
	return n
}

func anyInstance(fleet.Instance) bool { return true }
