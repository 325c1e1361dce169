package fleet

import "time"

// Report is the part of an agent's health report that decisions about its instance use.
type Report struct {
	At             time.Time     // when it was received
	ReportInterval time.Duration // the agent's own interval, an hour at most; 0 if not given
	ClockAhead     time.Duration // of the agent's host; negative: behind; 0 also if not given
	ShuttingDown   bool          // the agent is being stopped
	WriteError     string        // why the agent can't write to its disk; empty: it can
	WithoutFiles   bool          // the agent has no complete set of files
	Notice         *Notice       // nil: no termination announced
}
