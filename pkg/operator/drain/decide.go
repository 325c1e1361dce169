package drain

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// act is what is to be done for an instance.
type act string

const (
	leave       act = "leave"       // nothing, and no further look
	acknowledge act = "acknowledge" // tell the shard that nothing is left
	hold        act = "hold"        // nothing yet; look again
	empty       act = "empty"       // cordon, evict, look again
	tooLate     act = "tooLate"     // say what was left; the shard does not wait
)

// step is a decision, and why.
type step struct {
	act act
	why string
}

// view is all that is known of an instance that drains.
type view struct {
	instance *nstancev1.InstanceStatus
	// node is the instance's; nil without nodeErr: there certainly is none.
	node    *corev1.Node
	nodeErr error
	machine *clusterv1.Machine // nil: none stands for the instance
	now     time.Time
}

// draining reports whether a shard waits for an instance's node to be emptied. A
// machine that is down can't be emptied any more, and its shard doesn't wait for it.
func draining(i *nstancev1.InstanceStatus) bool {
	return i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING && i.GetDrain().GetAckedAt() == nil && !down(i)
}

// down reports whether an instance's machine does not run any more and won't again.
// One that is stopping still has pods that can be moved in order.
func down(i *nstancev1.InstanceStatus) bool {
	return slices.Contains([]string{"stopped", "deleting", "deleted", "failed"}, i.GetProviderState())
}

func decide(v view) step {
	switch {
	case !draining(v.instance):
		return step{act: leave}
	case excluded(v.machine):
		return step{acknowledge, "its Machine is excluded from draining"}
	case v.node == nil && v.nodeErr == nil:
		return step{acknowledge, "it has no node"}
	case past(v.instance, v.now):
		return step{act: tooLate}
	case v.nodeErr != nil:
		return step{hold, "its node is not known, because the workload cluster can't be asked"}
	}
	if hooks := preDrainHooks(v.machine); len(hooks) > 0 {
		return step{hold, "its Machine has pre-drain hooks: " + strings.Join(hooks, ", ")}
	}
	return step{act: empty}
}

// past reports whether the shard does not wait any longer.
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

// preDrainHooks are the annotations by which others hold a Machine's drain back. They
// count only while the Machine is being deleted: that is what their owners act on, so
// before it nobody would take them off, and the drain's time would pass.
func preDrainHooks(m *clusterv1.Machine) []string {
	if m == nil || m.DeletionTimestamp.IsZero() {
		return nil
	}
	var hooks []string
	for name := range m.Annotations {
		if strings.HasPrefix(name, clusterv1.PreDrainDeleteHookAnnotationPrefix) {
			hooks = append(hooks, name)
		}
	}
	slices.Sort(hooks)
	return hooks
}

// The pauses between two looks at a node.
const (
	shortest = time.Second
	longest  = 5 * time.Second
)

// pause is how long to wait for the next look at a drain that began at since: pods
// mostly go soon or not for a long time. It does not overlook the drain's end.
func pause(i *nstancev1.InstanceStatus, since, now time.Time) time.Duration {
	wait := min(max(now.Sub(since)/10, shortest), longest)
	if end := i.GetDrain().GetDeleteAt(); end != nil {
		wait = min(wait, max(end.AsTime().Sub(now), time.Millisecond))
	}
	return wait
}
