package fleet

import "time"

// Problem is something that a person may have to know.
type Problem struct {
	At       time.Time
	Reason   string // a short constant, such as ProviderError
	Message  string
	Group    GroupKey   // zero: concerns the shard
	Instance InstanceID // empty: concerns the group or the shard
}
