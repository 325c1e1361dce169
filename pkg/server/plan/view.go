// Package plan decides what happens to a group's instances next.
//
// Next is a pure function from one immutable View to a list of Actions: no I/O,
// no clock, no randomness, no context, no logger, and no dependence on map
// order. The same view gives the same actions, so a decision can be tested as a
// table, searched by a simulation, and explained after the fact. Executing the
// actions is the business of package reconcile.
package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// View is everything a decision about one group depends on.
type View struct {
	Now      time.Time
	Group    fleet.Group
	Settings Settings
	// Instances is every record of the group: tombstones and on-demand ones
	// too, and, as a busy pending one, every create whose record is still being
	// written or may have been. So no slot can be filled twice.
	Instances []Instance

	// Takeover is when this leader's term began to decide. Waiting for agents
	// and registrations counts from here at the earliest, since nothing was
	// heard before.
	Takeover time.Time
	Pace     Pace
	// Surge is how many instances beyond its size the shard lets the group have for
	// rotation and expiry now, those that it has already among them.
	Surge int
}

// Settings are the durations of the shard's config that decisions use. A zero
// age switches that kind of expiry off; without a report interval or a count of
// missed reports nothing is unhealthy, and without a registration timeout
// nothing is given up on. A zero grace or retention is none.
type Settings struct {
	ReportInterval      time.Duration
	MissedReports       int
	ShutdownGrace       time.Duration
	RegistrationTimeout time.Duration
	DeletedRetention    time.Duration
	EligibleAge         time.Duration
	ForcedAge           time.Duration
	OnDemandAge         time.Duration
	CreateTimeout       time.Duration // of on-demand instances; 0: they are tried for ever
	Settle              time.Duration // how long an instance lives, registered, until it is settled
}

// Instance is a record together with what is known of it beyond the record.
type Instance struct {
	fleet.Instance
	// KnownSince is when this leader first saw the record: later than the takeover
	// if it could not be read, or was not there, by then. Its agent was not listened
	// to before. Zero: since the takeover.
	KnownSince time.Time
	VM         VM
	Health     Health
	// Busy means that an action on this instance is under way; nothing new is
	// decided about it until that is over.
	Busy bool
	// AskedAt is this term's last create that the provider accepted, or whose
	// outcome is unknown; zero: none was.
	AskedAt time.Time
	// RetryAt is when the next attempt at the instance's create or delete is
	// due after one that failed or whose outcome is unknown; zero: at once.
	RetryAt time.Time
	// Owed marks one that had settled and is lost, and of which no replacement has
	// begun: the first comes at once, whatever became of other creates. A pending one is
	// owed that is such a replacement, and still to be made.
	Owed bool
	// Stray marks a pending record of an older epoch that was not there at
	// takeover: it was never acted on, and never will be.
	Stray bool
}

// VM is the provider's last word on an instance's machine.
type VM int

// The zero value is no word at all.
const (
	VMUnknown VM = iota // nothing heard, or a not-found too soon after the create to believe
	VMAlive             // pending or running
	VMDown              // stopping, stopped or failed: it exists, and will not work again
	VMGone              // confirmed: not found, or deleted
)

func (v VM) String() string {
	return [...]string{"unknown", "alive", "down", "gone"}[v]
}

// Health is what the instance's agent showed since Takeover. All of it is
// re-learned after a failover.
type Health struct {
	Connected    bool
	LastReportAt time.Time // zero: no report yet
	// ReportInterval is how often the agent itself said that it reports; 0: it
	// did not say.
	ReportInterval time.Duration
	ShuttingDownAt time.Time     // when the agent said that it is being stopped; zero: it did not, or it came back
	Notice         *fleet.Notice // the provider announced the end
}
