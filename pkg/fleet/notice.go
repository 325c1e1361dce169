package fleet

import "time"

// Notice is a termination notice, such as a spot interruption.
type Notice struct {
	Source string    // of the notice, such as aws-spot; empty if unknown
	Action string    // terminate, stop or hibernate; empty if unknown
	At     time.Time // when the action happens; zero if unknown
}
