package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Pace bounds a group's creates after failures. The zero value does not.
type Pace struct {
	// NotBefore is when the next create may begin; zero: now.
	NotBefore time.Time
	// Trials is how many instances may be on trial at one time; 0: any number.
	Trials int
	// Settling: an instance is on trial until it has lived for Proof. Otherwise it is
	// until the provider has accepted its create.
	Settling bool
	// Proof is how long an instance on trial has to live, registered; 0, or more than
	// that takes: until it has settled.
	Proof time.Duration
}

// leastProof is what an instance on trial has to live longer at least than those that
// died before.
const leastProof = 10 * time.Second

// ProofAfter is how long an instance has to live to show that it fares better than
// those that died young, the oldest of them at an age: twice as long, and longer by 10 s
// at least.
func ProofAfter(age time.Duration) time.Duration { return age + max(age, leastProof) }

// ProvenAfter is how long after its registration an instance on trial is on trial no
// longer.
func (p Pace) ProvenAfter(s Settings) time.Duration {
	settle := max(0, s.Settle)
	if p.Proof <= 0 {
		return settle
	}
	return min(p.Proof, settle)
}

// provenAt is the same as a moment. Zero: it has not registered.
func (p Pace) provenAt(i *fleet.Instance, s Settings) time.Time {
	if i.RegisteredAt == nil {
		return time.Time{}
	}
	return i.RegisteredAt.Add(p.ProvenAfter(s))
}
