package observe

import "github.com/nstance/nstance/pkg/fleet"

// News says what follows from an observation of an instance.
type News struct {
	Record  fleet.Instance // zero: there is none, and nothing follows
	Pass    Urgency        // how soon its group needs a pass
	Changed bool           // its observable state: that of its VM, or its health
	Poll    bool           // its VM has to be polled at once
}

// Urgency is how soon a pass is needed.
type Urgency int

// The urgencies. Unhurried news changes nothing for the other instances of the group, so
// passes for it are batched.
const (
	Nothing Urgency = iota
	Unhurried
	Urgent
)
