package machine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards"
)

// place stores the instance's shard and idempotency key, and the finalizer that keeps the
// object until the instance is gone.
func (r *Reconciler) place(ctx context.Context, s *scope) stepResult {
	if s.owner == nil {
		return r.noMachine(s.machine)
	}
	if s.cluster == nil {
		return stepResult{
			reason: reasonNoCluster, again: later,
			message: fmt.Sprintf("the Machine's Cluster %s does not exist", s.owner.Spec.ClusterName),
		}
	}
	if !s.owner.DeletionTimestamp.IsZero() && (s.machine.Spec.InstanceID == "" || unmade(s)) {
		return stepResult{reason: reasonDeleting, message: "the Machine is being deleted"}
	}
	to := s.machine.DeepCopy()
	controllerutil.AddFinalizer(to, v1beta1.Finalizer)
	if to.Spec.Shard == "" {
		shard, refused := r.shardFor(ctx, s)
		if refused.stopped() {
			return refused
		}
		to.Spec.Shard = v1beta1.Name(shard)
		if to.Spec.InstanceID == "" {
			metav1.SetMetaDataAnnotation(&to.ObjectMeta, v1beta1.AnnotationShardChosen, shard)
		}
	}
	if to.Spec.InstanceID == "" && to.Spec.IdempotencyKey == "" {
		key, err := shards.NewKey(r.Random)
		if err != nil {
			return stepResult{err: err}
		}
		to.Spec.IdempotencyKey = key
	}
	if !equality.Semantic.DeepEqual(to, s.machine) {
		own(to, s.owner)
		if err := r.write(ctx, s.machine, to); err != nil {
			return stepResult{err: err}
		}
		s.machine = to
		r.readShard(s)
	}
	if !s.configured {
		return stepResult{
			reason: reasonNoShard, again: later,
			message: fmt.Sprintf("spec.shard %s is not one of the operator's shards (%s)", to.Spec.Shard, r.names()),
		}
	}
	return stepResult{}
}

// own sets the Machine as the owner, in a write that has another reason. Cluster API sets it too;
// before that, the finalizer keeps the object if the Machine is deleted.
func own(to *v1beta1.NstanceMachine, m *clusterv1.Machine) {
	if len(to.OwnerReferences) > 0 {
		return
	}
	to.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.Name, UID: m.UID, Controller: new(true),
	}}
}

// shardFor chooses the shard of an instance.
func (r *Reconciler) shardFor(ctx context.Context, s *scope) (string, stepResult) {
	if id := string(s.machine.Spec.InstanceID); id != "" {
		for _, name := range r.Shards.Names() {
			if r.Shards.Instance(name, id) != nil {
				return name, stepResult{}
			}
		}
		return "", stepResult{
			reason: reasonNoShard, again: later,
			message: fmt.Sprintf("no shard (%s) knows instance %s: set spec.shard to its shard", r.names(), id),
		}
	}
	shard, refused, err := r.spread(ctx, s, s.owner.Spec.FailureDomain, "")
	switch {
	case err != nil:
		return "", stepResult{err: err}
	case shard == "":
		return "", stepResult{reason: reasonNoShard, message: refused, again: later}
	}
	return shard, stepResult{}
}

// spread chooses the shard of an instance: the wanted one, or else one of those that can have
// it, not the one where it failed if another can.
func (r *Reconciler) spread(ctx context.Context, s *scope, wanted, failed string) (shard, refused string, err error) {
	var all v1beta1.NstanceMachineList
	if err := r.Client.List(ctx, &all, client.InNamespace(s.machine.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", "", err
	}
	// The list may share memory with the cache, so it must not be changed.
	same := make([]v1beta1.NstanceMachine, 0, len(all.Items))
	for i := range all.Items {
		if all.Items[i].Spec.Group == s.machine.Spec.Group {
			same = append(same, all.Items[i])
		}
	}
	group := string(s.machine.Spec.Group)
	shard = r.places.place(s.machine, same, func(count map[string]int) (shard string) {
		shard, refused = choose(r.options(group, count, failed), group, wanted)
		return shard
	})
	return shard, refused, nil
}

// option is a candidate shard for an instance of a group.
type option struct {
	shard string
	// synced: the other fields are current.
	synced bool
	// has: the shard has the group.
	has bool
	// failing: the group's creates currently fail, or the last attempt for the instance did.
	failing bool
	// turn orders equal shards: by name, beginning after the one of the last attempt.
	turn int
	// machines is the number of the group's machines there.
	machines int
}

func (r *Reconciler) options(group string, count map[string]int, failed string) []option {
	var all []option
	names := r.Shards.Names()
	first := slices.Index(names, failed) + 1
	for n, name := range names {
		state, _ := r.Shards.State(name)
		g := r.Shards.Group(name, group)
		all = append(all, option{
			shard: name, synced: state.Synced, has: g != nil, machines: count[name], turn: (n - first + len(names)) % len(names),
			failing: name == failed || shards.Condition(g, v1beta1.ConditionCreatesFailing) != nil,
		})
	}
	return all
}

// choose returns the shard of a new instance: the wanted one, or else one where creates
// succeed, then with the fewest machines, then by turn. If shard is empty, refused says why.
func choose(options []option, group, wanted string) (shard, refused string) {
	var names []string
	for _, o := range options {
		names = append(names, o.shard)
	}
	if wanted != "" {
		if slices.Contains(names, wanted) {
			return wanted, ""
		}
		return "", fmt.Sprintf("the Machine's spec.failureDomain %s is not one of the shards %s", wanted, listed(names))
	}
	can := slices.DeleteFunc(slices.Clone(options), func(o option) bool { return !o.synced || !o.has })
	if len(can) == 0 {
		return "", fmt.Sprintf("no reachable shard has group %s: the shards are %s", group, listed(names))
	}
	return slices.MinFunc(can, func(a, b option) int {
		return cmp.Or(yes(a.failing)-yes(b.failing), cmp.Compare(a.machines, b.machines), cmp.Compare(a.turn, b.turn))
	}).shard, ""
}

func yes(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (r *Reconciler) names() string { return listed(r.Shards.Names()) }

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
