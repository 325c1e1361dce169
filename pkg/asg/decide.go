package asg

import "time"

// Seen is what one question to the health endpoint showed.
type Seen int

// What can be seen.
const (
	Silent  Seen = iota // nothing answered: the connection was refused, or hung
	Ill                 // an answer that says what is missing
	Healthy             // a 200
)

// Action is what is to be done.
type Action int

// The actions.
const (
	Wait     Action = iota
	Complete        // let the group take the machine into service
	Replace         // let the group replace the machine
)

// State is what is known of a server so far. The zero State is that of a server of which
// nothing is known, with a hook that may hold the machine up.
type State struct {
	Completed bool          // the hook was completed, or is none any more
	Healthy   bool          // it has been, at some time
	Silence   time.Duration // that was seen since it last answered, in any way
	Replaced  bool          // the group was told
}

// Next decides. The hook is completed at the first 200. A machine is replaced only if
// its server was healthy and then nothing has answered for lostAfter: what says why it
// can't serve would say the same on a new machine, for neither the storage nor the
// config is cured by one. A server that never was healthy is left to the hook's timeout.
//
// watched is the time since the question before in which the server was watched. Only
// that is silence: in a pause it was not seen that nothing answered.
func (s State) Next(watched time.Duration, seen Seen, lostAfter time.Duration) (State, Action) {
	s.Silence += watched
	if seen != Silent {
		s.Silence = 0
	}
	if seen == Healthy {
		s.Healthy = true
	}
	switch {
	case s.Healthy && !s.Completed && !s.Replaced && seen == Healthy:
		return s, Complete
	case s.Healthy && !s.Replaced && s.Silence >= lostAfter:
		return s, Replace
	default:
		return s, Wait
	}
}
