package drain

import (
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/operator/workload"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// act is what to do for an instance.
type act string

const (
	leave       act = "leave"       // do nothing, and don't requeue
	acknowledge act = "acknowledge" // tell the shard that the node is empty
	hold        act = "hold"        // wait, and requeue
	ambiguous   act = "ambiguous"   // like hold, until the instance's node is known
	again       act = "again"       // requeue silently
	empty       act = "empty"       // cordon, evict, requeue
	tooLate     act = "tooLate"     // report what is left; the shard no longer waits
)

// step is a decision, and why.
type step struct {
	act act
	why string
}

// nodeView is what is known of a draining instance.
type nodeView struct {
	instance *nstancev1.InstanceStatus
	// identity is what its node is recognized by.
	identity workload.Identity
	// node is the instance's; nil with a nil nodeErr: there certainly is none.
	node    *corev1.Node
	nodeErr error
	// justWent: there is no node, but there was a moment ago.
	justWent bool
	machine  *clusterv1.Machine // nil: the instance has none
	now      time.Time
}

// draining reports whether the shard waits for an instance's node to be emptied. A machine
// that is down can't be emptied, and its shard doesn't wait for it.
func draining(i *nstancev1.InstanceStatus) bool {
	return i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING && i.GetDrain().GetAckedAt() == nil && !down(i)
}

// down reports whether an instance's machine has stopped for good. A machine that is stopping
// still has pods that can be evicted.
func down(i *nstancev1.InstanceStatus) bool {
	return slices.Contains([]string{"stopped", "deleting", "deleted", "failed"}, i.GetProviderState())
}

// absent reports whether there certainly is no node.
func (v nodeView) absent() bool { return v.node == nil && v.nodeErr == nil && !v.justWent }

func decide(v nodeView) step {
	if !draining(v.instance) {
		return step{act: leave}
	}
	absent := v.absent()
	before, after := preDrainHooks(v), preTerminateHooks(v)
	if absent {
		before = nil // there is nothing to drain, as for core
	}
	switch {
	case len(before) == 0 && len(after) == 0 && excluded(v.machine):
		return step{acknowledge, "its Machine is excluded from draining"}
	case len(after) == 0 && absent:
		return step{acknowledge, "it has no node"}
	case past(v.instance, v.now):
		return step{act: tooLate}
	case v.justWent:
		return step{act: again} // the Node may be created again
	case len(before) > 0:
		return step{hold, heldBy("pre-drain", before)}
	case absent, excluded(v.machine):
		return step{hold, heldBy("pre-terminate", after)}
	case errors.As(v.nodeErr, new(*ambiguousError)):
		return step{ambiguous, v.nodeErr.Error()}
	case v.nodeErr != nil:
		return step{hold, "its node is unknown: the workload cluster can't be reached"}
	}
	return step{act: empty}
}

// past reports whether the shard no longer waits.
func past(i *nstancev1.InstanceStatus, now time.Time) bool {
	end := i.GetDrain().GetDeleteAt()
	return end != nil && !now.Before(end.AsTime())
}

func excluded(m *clusterv1.Machine) bool {
	if m == nil {
		return false
	}
	_, is := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]
	return is
}

// Requeue intervals of a drain.
const (
	shortest = time.Second
	longest  = 5 * time.Second
)

// pause returns the requeue delay of a drain that began at since: pods mostly go soon or not
// for a long time. It never exceeds the drain's end.
func pause(i *nstancev1.InstanceStatus, since, now time.Time) time.Duration {
	wait := min(max(now.Sub(since)/10, shortest), longest)
	if end := i.GetDrain().GetDeleteAt(); end != nil {
		wait = min(wait, max(end.AsTime().Sub(now), time.Millisecond))
	}
	return wait
}
