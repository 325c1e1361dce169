package fleet

import "time"

// CreatesFailing describes a group whose creates fail: the provider refuses them, or
// the machines end, or never register, before they have settled.
type CreatesFailing struct {
	Since    time.Time // the first of these failures
	Failures int
	Reason   string    // of the last failure, such as ProviderError or MachineDied
	Message  string    // details of the last failure, from the provider where available
	Next     time.Time // when the next create is due; zero while a create is in progress
}
