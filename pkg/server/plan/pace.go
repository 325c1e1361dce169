package plan

import "time"

// Pace bounds a group's creates after failures. The zero value does not.
type Pace struct {
	// NotBefore is when the next create may begin; zero: now.
	NotBefore time.Time
	// Trials is how many instances may be on trial at one time; 0: any number.
	Trials int
	// Settling: an instance is on trial until it has settled. Otherwise it is until the
	// provider has accepted its create.
	Settling bool
}
