package census

import (
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// This file decides about VMs that the provider does not find, individually and for the
// whole shard. A VM that the provider shows in a dead state needs no such check.

const (
	// BelieveNotFound is how long after a create a not-found answer is ignored, since the
	// new VM may not be visible yet.
	BelieveNotFound = time.Minute
	// confirmAfter is the minimum time between the two not-found answers that are required
	// if reads are eventually consistent, since either one may be stale.
	confirmAfter = 2 * time.Second
	// ComeBack is how long agents have to open their streams, after a takeover or after an
	// absent VM's agent was last connected, before their silence counts.
	ComeBack = 30 * time.Second
)

// Search is what is known of a VM that a Get did not find.
type Search struct {
	Consistent bool      // the provider's reads are strongly consistent
	Shown      bool      // the provider returned the VM earlier in this term
	Attempted  time.Time // the last create
	MissedAt   time.Time // when the first of the consecutive calls that did not find it was sent; zero: none
}

// Finding is the conclusion from a Get that did not find a VM.
type Finding struct {
	Gone     bool
	MissedAt time.Time // of the first consecutive miss; zero: the answer is ignored
	AskAt    time.Time // when to repeat the call; zero: not needed
}

// Missed evaluates a call sent at asked that did not find the record's VM. If reads are
// consistent, the answer is ignored only while a create may still take effect. Otherwise two
// answers are required and, soon after the create, they count only if the instance has
// registered, which proves that its VM existed.
func Missed(r fleet.Instance, s Search, asked time.Time) Finding {
	registered := r.RegisteredAt != nil
	proven := registered || s.Consistent && (s.Shown || r.Provider.ID != "")
	sure := s.Attempted.Add(BelieveNotFound)
	if !proven && asked.Before(sure) {
		return Finding{AskAt: sure}
	}
	f := Finding{MissedAt: s.MissedAt}
	if f.MissedAt.IsZero() {
		f.MissedAt = asked
	}
	if again := f.MissedAt.Add(confirmAfter); !s.Consistent && asked.Before(again) {
		f.AskAt = again
		return f
	}
	f.Gone = true
	return f
}

// Roll counts a shard's instances by whether their VMs are present.
type Roll struct {
	Records   int // active or draining instances
	Absent    int // of Records: the provider does not find the VM, or does not list it and a Get failed
	Connected int // of Absent: the agent's stream is open nevertheless
	Found     int // active or draining instances whose VM the provider shows
}

// Exceeds reports whether so many VMs are absent that the provider may be misconfigured.
func (r Roll) Exceeds() bool { return r.Absent > Limit(r.Records, r.Records) }

// Text describes the roll as a problem, given the absent instances whose agents are connected.
func (r Roll) Text(connected []fleet.InstanceID) string {
	names := Some(connected, func(id fleet.InstanceID) string { return string(id) })
	return fmt.Sprintf(
		"The provider does not find the VMs of %d of this shard's %d instances, more than the limit of %d, but the agents of %d of them are "+
			"connected: %s. So the provider is probably misconfigured. Nothing is created or deleted until this is resolved. Check the "+
			"provider's credentials, account, region and endpoint (docker: engine, process: dir). This ends automatically when the "+
			"provider finds the VMs again, or when none of their agents has been connected for %s.",
		r.Absent, r.Records, Limit(r.Records, r.Records), r.Connected, names, ComeBack)
}

// Verdict is the result of the absence check.
type Verdict int

// The verdicts.
const (
	Believed Verdict = iota // few VMs are absent, or the loss is real
	Awaited                 // agents may still connect: no decisions about absent instances until then
	Blind                   // like Awaited, but no VM is found at all: no decisions until then
	Refuted                 // agents are connected from machines that the provider does not find
)

// Weigh decides whether the absent VMs of a shard are gone, using their agents' streams as
// the second source. silentFrom is the takeover, or when one of the absent was last
// connected, if that is later. until is when Awaited or Blind ends.
func Weigh(r Roll, silentFrom, now time.Time) (v Verdict, until time.Time) {
	until = silentFrom.Add(ComeBack)
	switch {
	case !r.Exceeds():
		return Believed, time.Time{}
	case r.Connected > 0:
		return Refuted, time.Time{}
	case now.Before(until) && r.Found == 0:
		return Blind, until
	case now.Before(until):
		return Awaited, until
	default:
		return Believed, time.Time{}
	}
}
