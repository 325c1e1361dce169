package fleet

import "time"

// Report is what an agent's health report means for decisions about its instance.
type Report struct {
	At             time.Time     // when it was received
	ReportInterval time.Duration // how often the agent says that it reports, an hour at most; 0: it does not say
	ShuttingDown   bool          // the agent is being stopped
	Notice         *Notice       // nil: no termination is announced
}
