package fleet

import "time"

// CreatesFailing says that the creates of a group fail: the provider refuses them,
// or the machines end, or never register, before they have settled.
type CreatesFailing struct {
	Since    time.Time // the first of these failures
	Failures int
	Reason   string    // of the last failure, such as ProviderError or MachineDied
	Message  string    // the same in words, the provider's own where it has any
	Next     time.Time // when the next create is due; zero: its outcome is awaited
}
