package fleet

import "time"

// Problem is something that a person may have to know.
type Problem struct {
	At       time.Time
	Reason   string // a short constant, such as ProviderError
	Message  string
	Group    GroupKey   // zero: concerns the shard
	Instance InstanceID // empty: concerns the group or the shard
	Over     bool       // it is no more: the problem of this reason, group and instance
}

// Malformed is an object in the place of an instance's record that can't be
// understood. It is left alone: whatever VM it speaks of must be, too.
type Malformed struct {
	Key    string
	Tenant string     // as the key says; empty when that is malformed as well
	ID     InstanceID // the same
	Err    error      // what is wrong with it
}
