package shardgroup

import "k8s.io/apimachinery/pkg/util/intstr"

// annotationSurge is set on an object before its maxSurge is pushed, until the shard has
// accepted its withdrawal. A group shows its surge, not the origin.
const annotationSurge = "nstance.dev/pushed-max-surge"

// surgeToPush returns the surge to send to the shard; nil to leave it. An empty one withdraws
// what was pushed before and is no longer wanted.
func surgeToPush(want *intstr.IntOrString, have known) *string {
	switch {
	case want == nil && have.surge:
		return new("")
	case want == nil, exists(have.group) && want.String() == have.group.GetMaxSurge():
		return nil
	default:
		return new(want.String())
	}
}
