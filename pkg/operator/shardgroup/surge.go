package shardgroup

import "k8s.io/apimachinery/pkg/util/intstr"

// annotationSurge is on an object from before its maxSurge is pushed until the shard has
// taken it back. A group shows the one it has, not who has set it.
const annotationSurge = "nstance.dev/pushed-max-surge"

// surgeToPush returns the surge that the shard has to be told; nil: none. The empty one
// takes back what was pushed before and is wanted no more.
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
