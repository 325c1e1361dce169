package machine

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// place writes down where an instance is to be, and with which key it is asked for,
// together with what keeps the object until the instance is gone.
func (r *Reconciler) place(ctx context.Context, s *scope) outcome {
	if s.owner == nil {
		return outcome{reason: reasonNoMachine, message: "no Machine refers to this NstanceMachine yet"}
	}
	if s.cluster == nil {
		return outcome{
			reason: reasonNoCluster, again: later,
			message: fmt.Sprintf("there is no Cluster %s, which the Machine belongs to", s.owner.Spec.ClusterName),
		}
	}
	if !s.owner.DeletionTimestamp.IsZero() && s.machine.Spec.InstanceID == "" {
		return outcome{reason: reasonDeleting, message: "the Machine is being deleted"}
	}
	to := s.machine.DeepCopy()
	controllerutil.AddFinalizer(to, v1beta1.Finalizer)
	if len(to.OwnerReferences) == 0 {
		// Cluster API sets this too. Until then nothing would clean up if the Machine went.
		to.OwnerReferences = []metav1.OwnerReference{ownedBy(s.owner)}
	}
	if to.Spec.Shard == "" {
		shard, refused := r.shardFor(ctx, s)
		if refused.stopped() {
			return refused
		}
		to.Spec.Shard = v1beta1.Name(shard)
	}
	if to.Spec.InstanceID == "" && to.Spec.IdempotencyKey == "" {
		key, err := newKey(r.Random)
		if err != nil {
			return outcome{err: err}
		}
		to.Spec.IdempotencyKey = key
	}
	if err := r.write(ctx, s.machine, to); err != nil {
		return outcome{err: err}
	}
	s.machine = to
	r.look(s)
	if !s.configured {
		return outcome{
			reason: reasonNoShard, again: later,
			message: fmt.Sprintf("spec.shard is %s, which is none of the operator's shards (%s)", to.Spec.Shard, r.names()),
		}
	}
	return outcome{}
}

func ownedBy(m *clusterv1.Machine) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.Name, UID: m.UID, Controller: new(true),
	}
}

// newKey is a key that was never used.
func newKey(random io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("make an idempotency key: %w", err)
	}
	return "nsm-" + hex.EncodeToString(b[:]), nil
}

// shardFor decides on the shard of an instance.
func (r *Reconciler) shardFor(ctx context.Context, s *scope) (string, outcome) {
	if id := string(s.machine.Spec.InstanceID); id != "" {
		for _, name := range r.Shards.Names() {
			if r.Shards.Instance(name, id) != nil {
				return name, outcome{}
			}
		}
		return "", outcome{
			reason: reasonNoShard, again: later,
			message: fmt.Sprintf("no shard (%s) knows the instance %s: name its shard in spec.shard", r.names(), id),
		}
	}
	var all v1beta1.NstanceMachineList
	if err := r.Client.List(ctx, &all, client.InNamespace(s.machine.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", outcome{err: err}
	}
	// The list may be the cache's own, so it must not be changed.
	same := make([]v1beta1.NstanceMachine, 0, len(all.Items))
	for i := range all.Items {
		if all.Items[i].Spec.Group == s.machine.Spec.Group {
			same = append(same, all.Items[i])
		}
	}
	var refused string
	shard := r.places.place(s.machine, same, func(count map[string]int) (shard string) {
		shard, refused = choose(r.options(string(s.machine.Spec.Group), count), string(s.machine.Spec.Group), s.owner.Spec.FailureDomain)
		return shard
	})
	if shard == "" {
		return "", outcome{reason: reasonNoShard, message: refused, again: later}
	}
	return shard, outcome{}
}

// option is a shard on which an instance of a group may be.
type option struct {
	shard string
	// synced: what is known of it is true now.
	synced bool
	// has: the group is there.
	has bool
	// failing: the group can't be given more instances at present.
	failing bool
	// machines is how many the group has there.
	machines int
}

func (r *Reconciler) options(group string, count map[string]int) []option {
	var all []option
	for _, name := range r.Shards.Names() {
		state, _ := r.Shards.State(name)
		g := r.Shards.Group(name, group)
		all = append(all, option{
			shard: name, synced: state.Synced, has: g != nil, failing: createsFailing(g), machines: count[name],
		})
	}
	return all
}

func createsFailing(g *nstancev1.GroupStatus) bool {
	return slices.ContainsFunc(g.GetConditions(), func(c *nstancev1.Condition) bool {
		return c.GetType() == v1beta1.ConditionCreatesFailing && c.GetStatus()
	})
}

// choose decides on which shard a new instance of a group is: on the wanted one, or else
// where creates work, then where it has the fewest, then by name. No shard: refused says
// why.
func choose(options []option, group, wanted string) (shard, refused string) {
	var names []string
	for _, o := range options {
		names = append(names, o.shard)
	}
	if wanted != "" {
		if slices.Contains(names, wanted) {
			return wanted, ""
		}
		return "", fmt.Sprintf("the Machine's spec.failureDomain is %s: want one of the shards %s", wanted, listed(names))
	}
	can := slices.DeleteFunc(slices.Clone(options), func(o option) bool { return !o.synced || !o.has })
	if len(can) == 0 {
		return "", fmt.Sprintf("no shard that is in touch has the group %s: the shards are %s", group, listed(names))
	}
	return slices.MinFunc(can, func(a, b option) int {
		return cmp.Or(yes(a.failing)-yes(b.failing), cmp.Compare(a.machines, b.machines), cmp.Compare(a.shard, b.shard))
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
