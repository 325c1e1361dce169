package leader

import (
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/broadcast"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/problems"
)

const (
	// ReasonStuck is the reason of the problem that the leader can't act.
	ReasonStuck = "LeaderStuck"
	// ReasonStorageUnreachable is the reason of the problem that object storage takes no writes.
	ReasonStorageUnreachable = "StorageUnreachable"
	// ReasonIdentityShared is the reason of the problem that two machines have the identity of
	// one instance.
	ReasonIdentityShared = "IdentityShared"
	// ReasonRegistrationRefused is the reason of the problem that the agent of an instance, with a
	// valid nonce for it, may not register.
	ReasonRegistrationRefused = "RegistrationRefused"
	// ReasonDisk is the reason of the problem that the agent of an instance can't write to its disk.
	ReasonDisk = "DiskNotWritable"
)

const (
	// shardEventLife is for how long an event of the shard concerns its groups.
	shardEventLife = 5 * time.Minute
	// filesProblemLife is longer than the wait between two attempts to deliver. A problem that was
	// not reported for this long was of an instance that is gone.
	filesProblemLife = time.Hour
)

// shownProblems decides which problems of a term each tenant is shown.
type shownProblems struct {
	set  *problems.Set
	gone func(fleet.GroupKey) bool
	now  func() time.Time
}

var _ operators.Problems = shownProblems{}

// OfGroup implements operators.Problems. The message names the instance that has the problem, since
// there may be many.
func (s shownProblems) OfGroup(key fleet.GroupKey, complete bool) fleet.Problem {
	var p fleet.Problem
	if complete {
		if event := s.set.Event(key); s.besideWork(event) {
			p = event
		}
		p = newest(p, s.set.Lasting(key), s.besideWork)
	} else {
		p = s.incomplete(key)
	}
	if p.Instance != "" && !strings.Contains(p.Message, "instance "+string(p.Instance)) {
		p.Message = "instance " + string(p.Instance) + ": " + p.Message
	}
	return p
}

// besideWork reports whether a problem concerns instances that work.
func (s shownProblems) besideWork(p fleet.Problem) bool {
	return p.Reason == ReasonDisk || p.Reason == delivery.ReasonFiles && !s.outlived(p)
}

// outlived reports whether a problem of files was not reported again for so long that it is over.
func (s shownProblems) outlived(p fleet.Problem) bool {
	return p.Reason == delivery.ReasonFiles && s.now().Sub(p.At) >= filesProblemLife
}

// incomplete returns what keeps a group from its size. What blocks the whole shard comes first, then
// the newest problem of the group, then that of the shard. Problems of the shard may name machines of
// every tenant, so other tenants than the default one are shown no more than that there is one.
func (s shownProblems) incomplete(key fleet.GroupKey) fleet.Problem {
	isDefault := key.Tenant == fleet.DefaultTenant
	ofShard := s.set.Lasting(fleet.GroupKey{})
	hidden := explainedByOutage(ofShard)
	ofShard = slices.DeleteFunc(ofShard, hidden)
	if n := slices.IndexFunc(ofShard, func(p fleet.Problem) bool { return p.Blocks }); n >= 0 {
		p := ofShard[n]
		if !isDefault {
			p.Message = "the shard changes nothing until its administrator has settled a problem"
		}
		return p
	}
	// Failing creates are a condition of their own.
	event := s.set.Event(key)
	if hidden(event) || s.outlived(event) {
		event = fleet.Problem{}
	}
	p := newest(event, s.set.Lasting(key), func(p fleet.Problem) bool { return p.Reason != problems.ReasonCreatesFailing && !hidden(p) })
	throttled := func(p fleet.Problem) bool { return p.Reason == problems.ReasonThrottled }
	if p.Message == "" && isDefault {
		event := s.set.Event(fleet.GroupKey{})
		if hidden(event) || s.now().Sub(event.At) > shardEventLife {
			event = fleet.Problem{}
		}
		p = newest(event, ofShard, func(p fleet.Problem) bool { return !throttled(p) })
	}
	if p.Message == "" {
		if p = newest(fleet.Problem{}, ofShard, throttled); p.Message != "" && !isDefault {
			p.Message = "the provider refuses calls of the shard for their number"
		}
	}
	return p
}

// explainedByOutage returns which problems an outage of object storage explains, given those of the
// shard: a group shows it as a condition of its own.
func explainedByOutage(ofShard []fleet.Problem) func(fleet.Problem) bool {
	lasts := slices.ContainsFunc(ofShard, func(p fleet.Problem) bool { return p.Reason == ReasonStorageUnreachable })
	return func(p fleet.Problem) bool {
		return lasts && (p.Reason == ReasonStorageUnreachable || p.Reason == problems.ReasonStorage)
	}
}

// newest returns the newest of an event and the lasting problems that count.
func newest(event fleet.Problem, lasting []fleet.Problem, counts func(fleet.Problem) bool) fleet.Problem {
	p := event
	for _, x := range lasting {
		if counts(x) && !x.At.Before(p.At) {
			p = x
		}
	}
	return p
}

// Follow implements operators.Problems. Only tenant default is shown problems of the shard.
func (s shownProblems) Follow(tenant string) *broadcast.Reader[fleet.Problem] {
	s.prune() // an attempt for a group that is gone may have failed since
	now := s.now()
	shown := func(p fleet.Problem) bool {
		return p.Group.Tenant == tenant || p.Group == (fleet.GroupKey{}) && tenant == fleet.DefaultTenant
	}
	over := func(p fleet.Problem) bool { return p.Group == (fleet.GroupKey{}) && now.Sub(p.At) > shardEventLife }
	return s.set.Follow(shown, over, operators.MaxPendingProblems)
}

// prune drops the problems of groups that are gone.
func (s shownProblems) prune() {
	for _, key := range s.set.Groups() {
		s.pruneOf(key)
	}
}

// pruneOf drops the problems of a group that is gone.
func (s shownProblems) pruneOf(key fleet.GroupKey) {
	if key != (fleet.GroupKey{}) && s.set.Has(key) && s.gone(key) {
		s.set.Drop(key)
	}
}

// ofInstance returns the problem that the agents of an instance cause for as long as it lasts; zero
// if there is none. An instance that can't register has no identity that another could share.
func (s shownProblems) ofInstance(key fleet.GroupKey, id fleet.InstanceID) fleet.Problem {
	for _, reason := range []string{ReasonRegistrationRefused, ReasonIdentityShared, ReasonDisk, ReasonClock} {
		if p, ok := s.set.Get(problems.Subject{Group: key, Instance: id, Reason: reason}); ok {
			return p
		}
	}
	return fleet.Problem{}
}

// progress ends what a changed instance shows to be over: all problems of one that is deleted, and
// the group's last event if it was of this instance, or came before it was made. A problem of files is
// over when they are delivered, not when a machine is made that gets none either.
func (s shownProblems) progress(key fleet.GroupKey, i fleet.Instance) {
	if i.Phase == fleet.Deleted {
		s.set.ClearAll(func(x problems.Subject) bool { return x.Instance == i.ID })
	}
	works, ended := i.Provider.ID != "" && i.Phase.Active(), i.Phase == fleet.Deleted
	attempted := i.CreatedAt
	if i.Provider.CreateAttemptedAt != nil {
		attempted = *i.Provider.CreateAttemptedAt
	}
	s.set.DropEvent(key, func(p fleet.Problem) bool {
		works := works && p.Reason != delivery.ReasonFiles
		return (works || ended) && p.Instance == i.ID || works && attempted.After(p.At)
	})
}

// delivered ends what delivery of a group's files shows to be over.
func (t *Term) delivered(key fleet.GroupKey) {
	t.problems.Clear(key, "", delivery.ReasonFiles)
	if t.problems.DropEvent(key, func(p fleet.Problem) bool { return p.Reason == delivery.ReasonStorage && p.Instance == "" }) {
		t.problemChanged(key)
	}
}

// Report reports a problem of the shard that lasts until Over is called.
func (t *Term) Report(p fleet.Problem) {
	p.Lasts = true
	t.problems.Set(p)
}

// Over ends the problem of the shard with a reason.
func (t *Term) Over(reason string) { t.problems.Clear(fleet.GroupKey{}, "", reason) }
