package ondemand

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// guestsPause is the requeue delay while pods hold a machine that its own pod does not need.
const guestsPause = time.Minute

// candidate is a machine that may go: the one that its pod no longer needs, or that of a pod
// that runs on an earlier candidate, and so could have that one instead.
type candidate struct {
	claim   claim
	hosting hosting
	// heir is the pod with this claim, and from the candidate that it is on; nil for the first.
	heir *corev1.Pod
	from int
}

// pick returns which candidate goes, from reads of the API server; -1: none now. Of the
// machines that host no pod with a claim on another one, the nearest that hosts nothing goes,
// then one without a known Node. One that hosts other pods goes only if one has to.
func pick(all []candidate, certain bool) int {
	const none = 3
	best, rank := -1, none
	for i, c := range all {
		its := 2
		switch {
		case slices.ContainsFunc(all, func(next candidate) bool { return next.heir != nil && next.from == i }):
			continue
		case len(c.hosting.pods) == 0 && c.hosting.seen:
			its = 0
		case len(c.hosting.pods) == 0:
			its = 1
		}
		if its < rank {
			best, rank = i, its
		}
	}
	if rank == none-1 && !certain {
		return -1
	}
	return best
}

// heirOfFirst returns the pod to which the first machine is handed over when candidate i is to
// go; nil if that is the first.
func heirOfFirst(all []candidate, i int) *corev1.Pod {
	var heir *corev1.Pod
	for ; all[i].heir != nil; i = all[i].from {
		heir = all[i].heir
	}
	return heir
}

// reclaim takes back the machine of a claim. If it hosts a pod that has a claim on another
// machine, it becomes that pod's, and the other one is superfluous: so a restarted operator
// finds a pod with two machines, and takes back the one that the pod is not on. after is the
// requeue delay.
func (r *Reconciler) reclaim(ctx context.Context, c claim, certain bool) (after time.Duration, err error) {
	if c.machine == nil {
		return 0, r.unmake(ctx, c)
	}
	// The cache may be stale: so the machine is deleted or handed over as it is now, or not.
	c, err = r.fresh(ctx, c)
	if err != nil || c.machine == nil || !c.machine.DeletionTimestamp.IsZero() {
		return 0, err
	}
	all, err := r.candidates(ctx, c)
	if err != nil {
		return 0, err
	}
	i := pick(all, certain)
	if i < 0 {
		return guestsPause, nil
	}
	heir, unknown := heirOfFirst(all, i), false
	if heir == nil {
		if heir, unknown, err = r.adopter(ctx, all[0]); err != nil {
			return 0, err
		}
	}
	if unknown {
		return guestsPause, nil
	}
	if heir != nil {
		err = r.handOver(ctx, c, heir)
	} else {
		err = take(ctx, r.Client, c.machine)
	}
	if apierrors.IsConflict(err) {
		return again, nil
	}
	return 0, err
}

// fresh reads a claim from the API server; without a Machine if that is gone or another pod's.
func (r *Reconciler) fresh(ctx context.Context, c claim) (claim, error) {
	var m clusterv1.Machine
	err := r.Reader.Get(ctx, client.ObjectKeyFromObject(c.machine), &m)
	if err != nil || m.UID != c.machine.UID || ownerOf(&m) != c.owner() {
		return claim{}, client.IgnoreNotFound(err)
	}
	now := claim{machine: &m}
	var i v1beta1.NstanceMachine
	err = r.Reader.Get(ctx, client.ObjectKeyFromObject(&m), &i)
	if err == nil {
		now.infrastructure = &i
	}
	return now, client.IgnoreNotFound(err)
}

// candidates returns the machines that may go instead of first, and what they host.
func (r *Reconciler) candidates(ctx context.Context, first claim) ([]candidate, error) {
	all := []candidate{{claim: first}}
	var claims map[types.UID]claim // read when it is needed
	for i := 0; i < len(all); i++ {
		var err error
		if all[i].hosting, err = hosts(ctx, r.Workload, all[i].claim); err != nil {
			return nil, err
		}
		if len(all[i].hosting.pods) > 0 && claims == nil {
			if claims, err = r.claimsNow(ctx, first.group()); err != nil {
				return nil, err
			}
		}
		for p := range all[i].hosting.pods {
			pod := &all[i].hosting.pods[p]
			other, has := claims[pod.UID]
			known := slices.ContainsFunc(all, func(c candidate) bool { return c.claim.name() == other.name() })
			if has && !known {
				all = append(all, candidate{claim: other, heir: pod, from: i})
			}
		}
	}
	return all, nil
}

// claimsNow returns the complete claims on machines of a group, by pod, from the API server.
func (r *Reconciler) claimsNow(ctx context.Context, group string) (map[types.UID]claim, error) {
	ours := []client.ListOption{
		client.InNamespace(r.Cluster.Namespace), client.HasLabels{LabelPodUID}, client.MatchingLabels{v1beta1.LabelGroup: group},
	}
	var machines clusterv1.MachineList
	var infrastructures v1beta1.NstanceMachineList
	for _, list := range []client.ObjectList{&machines, &infrastructures} {
		if err := r.Reader.List(ctx, list, ours...); err != nil {
			return nil, fmt.Errorf("list the claims of pods: %w", err)
		}
	}
	byName := map[string]*v1beta1.NstanceMachine{}
	for i := range infrastructures.Items {
		byName[infrastructures.Items[i].Name] = &infrastructures.Items[i]
	}
	all := map[types.UID]claim{}
	for i := range machines.Items {
		c := claim{machine: &machines.Items[i], infrastructure: byName[machines.Items[i].Name]}
		if c.whole() {
			all[c.owner()] = c
		}
	}
	return all, nil
}

// take deletes a Machine that was read before the decision, unless it has changed since. Its
// NstanceMachine follows.
func take(ctx context.Context, api client.Writer, m *clusterv1.Machine) error {
	err := api.Delete(ctx, m, client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Machine %s: %w", m.Name, err)
	}
	return nil
}
