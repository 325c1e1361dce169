// Package plan decides what happens to a group's instances next.
//
// Next is a pure function from one immutable View to a list of Actions: no I/O,
// no clock, no randomness, no context, no logger, and no dependence on map
// order. The same view gives the same actions, so a decision can be tested with a
// table, explored by a simulation, and explained after the fact. Package reconcile
// executes the actions.
package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// View is the input of Next: everything that a decision about one group depends on.
type View struct {
	Now      time.Time
	Group    fleet.Group
	Settings Settings
	// Filled is how many places of the group's size are held by VMs whose records can't be read.
	// Group.Size is already smaller by that.
	Filled int
	// Instances is every record of the group, including tombstones and on-demand ones. A
	// create whose record is being written, or may have been, is included as a busy
	// pending instance, so that none is created twice.
	Instances []Instance

	// Takeover is when this leader's term began to decide. Timeouts of agents and
	// registrations start here at the earliest, since nothing was received before.
	Takeover time.Time
	Pace     Pace
	// Surge is how many instances beyond its size the shard allows the group to have for
	// rotation and expiry, including those that it has already.
	Surge int
}

// Find returns the instance with the ID; nil if there is none. Instances must be sorted by ID.
func (v *View) Find(id fleet.InstanceID) *Instance {
	n, ok := slices.BinarySearchFunc(v.Instances, id, func(i Instance, id fleet.InstanceID) int { return cmp.Compare(i.ID, id) })
	if !ok {
		return nil
	}
	return &v.Instances[n]
}

// Settings are the durations of the shard's config that decisions use. A zero age disables
// that kind of expiry. With a zero ReportInterval or MissedReports no instance is ever
// unhealthy, and with a zero RegistrationTimeout none is given up. A zero grace or
// retention means none.
type Settings struct {
	ReportInterval      time.Duration
	MissedReports       int
	ShutdownGrace       time.Duration
	RegistrationTimeout time.Duration
	DeletedRetention    time.Duration
	EligibleAge         time.Duration
	ForcedAge           time.Duration
	OnDemandAge         time.Duration
	CreateTimeout       time.Duration // of on-demand instances; 0: retried for ever
	Settle              time.Duration // from the registration until an instance is settled
}

// Instance is a record together with what is known of the instance beyond the record.
type Instance struct {
	*fleet.Instance // shared: it is never changed
	// KnownSince is when this leader first saw the record, if that was after the takeover;
	// zero: at the takeover. Reports of the agent were ignored before.
	KnownSince time.Time
	VM         VM
	Health     Health
	// Busy means that an action on this instance is in progress; nothing new is decided
	// about it until that ends.
	Busy bool
	// AskedAt is the time of this term's last create that the provider accepted, or whose
	// outcome is unknown; zero: none.
	AskedAt time.Time
	// RetryAt is when the instance's create or delete is retried after a failure or an
	// unknown outcome; zero: at once.
	RetryAt time.Time
	// Immediate marks a lost instance that had settled and whose replacement has not begun:
	// the first replacement is not delayed by failures of other creates. It also marks that
	// replacement while it is pending and not created yet.
	Immediate bool
	// Stray marks a pending record of an older epoch that appeared after the takeover: its
	// create was never sent, and never will be.
	Stray bool
}

// VM is the last state of an instance's machine that the provider reported.
type VM int

// The states of a VM.
const (
	VMUnknown VM = iota // no answer yet, or a not-found too soon after the create
	VMAlive             // pending or running
	VMDown              // stopping, stopped or failed: it exists and will not work again
	VMGone              // confirmed: not found, or deleted
)

func (v VM) String() string {
	return [...]string{"unknown", "alive", "down", "gone"}[v]
}

// Dead reports whether the machine will not work again.
func (v VM) Dead() bool { return v == VMDown || v == VMGone }

// Health is what the instance's agent reported since Takeover. It is not persisted: each term
// starts empty.
type Health struct {
	Connected    bool
	LastReportAt time.Time // zero: no report yet
	// ReportInterval is the agent's own report interval; 0 if not given.
	ReportInterval time.Duration
	ShuttingDownAt time.Time     // when the agent reported that it is being stopped; zero: it did not, or it came back
	Notice         *fleet.Notice // termination notice of the provider
	WithoutFiles   bool          // the agent has no complete set of files
}
