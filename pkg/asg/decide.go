package asg

import "time"

// Seen is the result of one health check.
type Seen int

// Results of a health check.
const (
	Silent  Seen = iota // no answer: the connection was refused or timed out
	Ill                 // an answer other than 200
	Healthy             // a 200
)

// Action is the action to take.
type Action int

// Actions.
const (
	Wait     Action = iota
	Complete        // complete the hook, so that the group puts the machine into service
	Replace         // mark the machine unhealthy, so that the group replaces it
)

// State is the state of a watched server. The zero State is a server of which nothing is known,
// with a hook that may still be pending.
type State struct {
	Completed bool          // the hook is completed or gone
	Healthy   bool          // the server was healthy at least once
	Silence   time.Duration // observed time since the last answer of any kind
	Replaced  bool          // the machine was reported unhealthy
}

// Next returns the next state and action. The hook is completed at the first 200. A machine is
// replaced only if its server was healthy and then did not answer for lostAfter: a server that
// answers with an error would do the same on a new machine, which fixes neither storage nor
// config. A server that was never healthy is left to the hook's timeout.
//
// watched is the time since the previous check during which the server was watched. Only that
// counts as silence; pauses of this process don't.
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
