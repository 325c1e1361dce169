package measure

import (
	"time"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/fleet"
)

// State is the state of a server at a scrape.
type State struct {
	Ready bool   // as the health endpoint says
	Epoch uint64 // of the current leader, as far as this server knows; 0: not known

	CAExpires, ServerExpires time.Time         // zero: there is no certificate yet
	Issued                   map[string]uint64 // certificates since the start, by kind

	Audit        []audit.Tally
	AuditOmitted uint64 // events without a line

	Handshaking, Waiting int // connections
	AgentStreams         int // instances with an open stream
	Watches              int // of operators

	Term *Term // nil: this server does not lead
}

// Term is the state of a term.
type Term struct {
	Groups   []Group
	Problems map[string]int // those that last, by reason

	Due       int                // groups to decide about
	Queued    int                // groups whose creates wait for their turn
	Creating  int                // creates in progress
	Changes   float64            // creates and deletes per second that the provider accepts; 0: it does not throttle
	Throttled map[string]float64 // by kind of call: since how many seconds
}

// Group is the state of a group.
type Group struct {
	Key      fleet.GroupKey
	Wanted   int
	Actual   int // running, reported, with its files, not leaving, and not dead
	Outdated int // of Actual: made from another definition
	Silent   int // running, without a connected agent
	Ready    bool
	Phases   map[fleet.Phase]int // of all instances but tombstones, with those on demand

	CreatesFailing bool
	CreateFailures int
	NextCreate     time.Duration // until a create is tried again; 0: at once
}
