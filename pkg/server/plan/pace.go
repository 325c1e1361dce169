package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Pace limits a group's creates after failures. The zero value means no limit.
type Pace struct {
	// NotBefore is when the next create may begin; zero: now.
	NotBefore time.Time
	// Probation is how many instances may be on probation at one time; 0: any number.
	Probation int
	// Settling means that probation lasts until an instance has lived for Proof. Otherwise
	// it lasts until the provider has accepted the create.
	Settling bool
	// Proof is how long an instance has to live after its registration to end its probation,
	// at most until it has settled; 0: until it has settled.
	Proof time.Duration
}

// leastProof is the minimum by which an instance on probation has to outlive those that died
// young.
const leastProof = 10 * time.Second

// ProofAfter returns how long an instance has to live to end its probation, if the oldest that
// ended early reached age: twice as long, and at least 10 s longer.
func ProofAfter(age time.Duration) time.Duration { return age + max(age, leastProof) }

// ProvenAfter returns how long after its registration an instance's probation ends.
func (p Pace) ProvenAfter(s Settings) time.Duration {
	settle := max(0, s.Settle)
	if p.Proof <= 0 {
		return settle
	}
	return min(p.Proof, settle)
}

// provenAt returns when an instance's probation ends; zero if it has not registered.
func (p Pace) provenAt(i *fleet.Instance, s Settings) time.Time {
	if i.RegisteredAt == nil {
		return time.Time{}
	}
	return i.RegisteredAt.Add(p.ProvenAfter(s))
}

// Equal reports whether two paces are the same.
func (p Pace) Equal(o Pace) bool {
	at := p.NotBefore
	p.NotBefore = o.NotBefore
	return p == o && at.Equal(o.NotBefore)
}

// Life is the lifetime of an instance that was built from its group's current definition.
type Life struct {
	ID  fleet.InstanceID
	Age time.Duration // since its registration
}
