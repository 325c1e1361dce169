package fleet

import "time"

// Rotation is how far a group is with the replacement of running instances that are outdated or too old.
type Rotation struct {
	Left   int       // of them, those that have not begun to leave; 0: the group does not rotate
	Awaits string    // what comes before the next step: a constant of this package
	Until  time.Time // with AwaitsSettled: when one leaves, unless an instance fails meanwhile
}

// What the next step of a rotation awaits.
const (
	AwaitsReplacement = "AwaitsReplacement" // that enough instances are ready
	AwaitsSettled     = "AwaitsSettled"     // that enough of the ready instances have settled
	AwaitsLeaving     = "AwaitsLeaving"     // that instances which are leaving are gone
	AwaitsSilent      = "AwaitsSilent"      // that no instance is silent
	AwaitsSize        = "AwaitsSize"        // that the group has as many instances as its size
	AwaitsShardSurge  = "AwaitsShardSurge"  // that other groups leave some of the shard's surge
	AwaitsCreates     = "AwaitsCreates"     // that creates work again
)
