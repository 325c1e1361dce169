package fleet

import "time"

// Problem is a condition that an administrator may have to act on.
type Problem struct {
	At       time.Time
	Reason   string // a short constant, such as ProviderError
	Message  string
	Group    GroupKey   // zero: concerns the shard
	Instance InstanceID // empty: concerns the group or the shard
	// Lasts: it stays until its end is reported. Otherwise it is a single event.
	Lasts bool
	// Blocks: the shard creates and deletes nothing while it lasts.
	Blocks bool
	Over   bool // the end of the problem with this reason, group and instance
}

// Malformed is an object at the key of an instance record that can't be decoded. It is not
// changed, and neither is the VM that it may belong to.
type Malformed struct {
	Key    string
	Tenant string     // from the key; empty if the key is malformed too
	ID     InstanceID // from the key; empty if the key is malformed too
	Err    error      // why it can't be decoded, or read
	// Refused: the store refuses to return it.
	Refused bool
}
