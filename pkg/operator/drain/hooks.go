package drain

import (
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// preDrainHooks returns the annotations that hold a Machine's drain back.
func preDrainHooks(v nodeView) []string {
	return hooks(v, clusterv1.PreDrainDeleteHookAnnotationPrefix)
}

// preTerminateHooks returns the annotations that hold a Machine's end back, after its drain.
func preTerminateHooks(v nodeView) []string {
	return hooks(v, clusterv1.PreTerminateDeleteHookAnnotationPrefix)
}

// hooks returns the annotations with a prefix. They count only if the Machine is being deleted:
// only then do their owners act, so otherwise they would never be removed, and the drain would
// time out. The Machine of a pool is deleted as soon as its instance drains, so its hooks count
// even in the moment before.
func hooks(v nodeView, prefix string) []string {
	m := v.machine
	if m == nil || m.DeletionTimestamp.IsZero() && m.Labels[clusterv1.MachinePoolNameLabel] == "" {
		return nil
	}
	var found []string
	for name := range m.Annotations {
		if strings.HasPrefix(name, prefix) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

func heldBy(kind string, hooks []string) string {
	return "its Machine has " + kind + " hooks: " + strings.Join(hooks, ", ")
}
