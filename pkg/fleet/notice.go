package fleet

import "time"

// Notice is the announced end of a machine, such as a spot interruption.
type Notice struct {
	Source string    // who announced it, such as aws-spot; empty: not said
	Action string    // what will be done: terminate, stop or hibernate; empty: not said
	At     time.Time // when the machine will be taken; zero: not said
}
