package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
)

// infrastructure writes the NstanceCluster's status. An unreachable shard does not make it
// unready: machines there keep working, and new ones can be created elsewhere.
func (r *Reconciler) infrastructure(ctx context.Context, s *state) error {
	if s.infra == nil || !s.infra.DeletionTimestamp.IsZero() {
		return nil
	}
	was := s.infra.DeepCopy()
	status := &s.infra.Status
	status.ObservedGeneration = s.infra.Generation
	status.Initialization.Provisioned = new(true)
	status.Ready = new(true)
	status.FailureDomains = failureDomains(r.Shards.Names())
	set := []metav1.Condition{
		{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Provisioned"},
		pausedCondition(false),
	}
	if reachable, known := shardReachable(r.Shards); known {
		set = append(set, reachable)
	}
	r.set(&status.Conditions, s.infra.Generation, set...)
	return r.patchStatus(ctx, was, s.infra)
}

// controlPlane writes the NstanceControlPlane's status: it is externally managed, and
// available if there is a kubeconfig. unknown is the error of maintaining that, if any.
func (r *Reconciler) controlPlane(ctx context.Context, s *state, unknown error) error {
	if s.control == nil || !s.control.DeletionTimestamp.IsZero() {
		return nil
	}
	was := s.control.DeepCopy()
	status := &s.control.Status
	status.ObservedGeneration = s.control.Generation
	status.ExternalManagedControlPlane = new(true)
	status.Initialization.ControlPlaneInitialized = new(true)
	r.set(&status.Conditions, s.control.Generation, r.available(s, unknown), pausedCondition(false))
	return r.patchStatus(ctx, was, s.control)
}

func (r *Reconciler) available(s *state, unknown error) metav1.Condition {
	no := func(message string) metav1.Condition {
		return metav1.Condition{
			Type: clusterv1.AvailableCondition, Status: metav1.ConditionFalse, Reason: "NoKubeconfig", Message: message,
		}
	}
	switch {
	case r.Endpoint != "" && s.secret == nil:
		return no(fmt.Sprintf("Secret %s is missing: create it, since NSTANCE_CAPI_ENDPOINT is set", capi.KubeconfigName(r.Name)))
	case unknown != nil && !r.works(s):
		// The full error may differ each time.
		return no(fmt.Sprintf("no token of ServiceAccount %s: %s", r.ServiceAccount, apierrors.ReasonForError(unknown)))
	}
	return metav1.Condition{Type: clusterv1.AvailableCondition, Status: metav1.ConditionTrue, Reason: "KubeconfigProvided"}
}

// works reports whether the kubeconfig's token is still valid.
func (r *Reconciler) works(s *state) bool {
	_, end, err := times(held(s.secret))
	return err == nil && r.Now().Before(end)
}

func (r *Reconciler) set(conditions *[]metav1.Condition, generation int64, to ...metav1.Condition) {
	for _, condition := range to {
		condition.ObservedGeneration = generation
		condition.LastTransitionTime = metav1.NewTime(r.Now())
		meta.SetStatusCondition(conditions, condition)
	}
}

// patchStatus patches a changed status. The cache may be stale: the patch is conditional, since
// one made from an old status would write conditions and times from before.
func (r *Reconciler) patchStatus(ctx context.Context, was, is client.Object) error {
	if equality.Semantic.DeepEqual(was, is) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, is, capi.Locked(was)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of %T %s: %w", is, is.GetName(), err)
	}
	return nil
}

func failureDomains(names []string) []clusterv1.FailureDomain {
	var all []clusterv1.FailureDomain
	for _, name := range slices.Sorted(slices.Values(names)) {
		all = append(all, clusterv1.FailureDomain{Name: name, ControlPlane: new(false)})
	}
	return all
}

// shardReachable returns a condition over all shards. Until each has been contacted, the
// result is unknown and the condition of an earlier operator stays.
func shardReachable(all Shards) (judged metav1.Condition, known bool) {
	var not []string
	for _, name := range all.Names() {
		switch state, _ := all.State(name); {
		case state.Reachable:
		case state.Err == nil:
			return metav1.Condition{}, false
		default:
			not = append(not, name)
		}
	}
	if len(not) == 0 {
		return metav1.Condition{Type: v1beta1.ConditionShardReachable, Status: metav1.ConditionTrue, Reason: "Reachable"}, true
	}
	slices.Sort(not)
	return metav1.Condition{
		Type: v1beta1.ConditionShardReachable, Status: metav1.ConditionFalse, Reason: "Unreachable",
		Message: "not reachable: " + strings.Join(not, ", "),
	}, true
}

func pausedCondition(paused bool) metav1.Condition {
	if paused {
		return metav1.Condition{Type: v1beta1.ConditionPaused, Status: metav1.ConditionTrue, Reason: clusterv1.PausedReason}
	}
	return metav1.Condition{Type: v1beta1.ConditionPaused, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason}
}
