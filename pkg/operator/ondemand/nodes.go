package ondemand

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// maxPatience is the longest time that a machine is given to become a node, unless NodeStartup
// is longer.
const maxPatience = time.Hour

// sighting is what is known of a machine's node at one moment.
type sighting struct {
	infra    *v1beta1.NstanceMachine
	core     *clusterv1.Machine
	instance *nstancev1.InstanceStatus // nil: unknown
	placed   bool                      // the pod is on a node
	nodes    []corev1.Node             // all
	patience time.Duration
	now      time.Time
}

// checkNode replaces a registered machine that does not become a node, or whose kubelet is
// silent. after is when to look again. What the caches show is confirmed by the API servers
// first: a stale cache, an API server that can't be reached, or a shard without a current
// snapshot is no reason.
func (h *Health) checkNode(ctx context.Context, m *v1beta1.NstanceMachine) (after time.Duration, err error) {
	shard := string(m.Spec.Shard)
	look := h.NodeStartup / 2
	if state, _ := h.Shards.State(shard); !state.Synced {
		return look, nil
	}
	core, err := capi.OwnerMachine(ctx, h.Client, m)
	if err != nil || core == nil || !core.DeletionTimestamp.IsZero() {
		return 0, err
	}
	pod, err := h.pod(ctx, m)
	if err != nil || pod == nil {
		return look, err // the machine of a pod that is gone is deleted anyway
	}
	s := sighting{infra: m, core: core, instance: h.Shards.Instance(shard, string(m.Spec.InstanceID)), now: h.Now()}
	s.patience = patience(h.NodeStartup, s.instance, pod)
	var nodes corev1.NodeList
	if err := h.Workload.Client().List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list the nodes: %w", err)
	}
	s.nodes = nodes.Items
	f, left := judge(s)
	if f == (failure{}) {
		return cmp.Or(min(left, look), look), nil
	}
	if s.nodes, s.placed, err = h.confirm(ctx, pod); err != nil {
		return look, client.IgnoreNotFound(err)
	}
	if f, _ = judge(s); f == (failure{}) {
		return look, nil
	}
	return look, h.replace(ctx, m, core, f)
}

// confirm reads the nodes, and whether the pod is on one, uncached.
func (h *Health) confirm(ctx context.Context, of metav1.Object) (nodes []corev1.Node, placed bool, err error) {
	var list corev1.NodeList
	if err := h.Workload.Reader().List(ctx, &list); err != nil {
		return nil, false, fmt.Errorf("list the nodes: %w", err)
	}
	var pod corev1.Pod
	if err := h.Workload.Reader().Get(ctx, client.ObjectKey{Namespace: of.GetNamespace(), Name: of.GetName()}, &pod); err != nil {
		return nil, false, err
	}
	return list.Items, pod.Spec.NodeName != "" || pod.UID != of.GetUID(), nil
}

// judge returns why a machine is to be replaced, or when that may be so; zero: not foreseeable.
func judge(s sighting) (f failure, left time.Duration) {
	i := s.instance
	if i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING || i.GetRegisteredAt() == nil {
		return failure{}, 0
	}
	id := s.infra.Spec.ProviderID
	switch own := slices.DeleteFunc(slices.Clone(s.nodes), func(n corev1.Node) bool { return !couldBe(&n, id, i) }); {
	case len(own) == 0 && (s.core.Status.NodeRef.Name != "" || s.placed):
		return failure{}, 0 // it had a node, or has one that is not recognized
	case len(own) == 0:
		if left = i.GetRegisteredAt().AsTime().Add(s.patience).Sub(s.now); left > 0 {
			return failure{}, left
		}
		return failure{reason: "OnDemandNoNode", note: fmt.Sprintf(
			"instance %s registered %s ago, but no node has its provider ID %s, its name or an address of it: it is replaced; "+
				"check on such a machine that the kubelet runs, reaches the API server, and has that --provider-id",
			i.GetId(), s.now.Sub(i.GetRegisteredAt().AsTime()).Round(time.Minute), id)}, 0
	case len(own) == 1 && own[0].Spec.ProviderID == id:
		return silent(s, &own[0])
	}
	return failure{}, 0
}

// silent judges a machine that has a node. If most nodes are not ready, the fault is likely
// elsewhere.
func silent(s sighting, n *corev1.Node) (f failure, left time.Duration) {
	c := ready(n)
	if c == nil || c.Status != corev1.ConditionUnknown {
		return failure{}, 0
	}
	work := 0
	for i := range s.nodes {
		if c := ready(&s.nodes[i]); c != nil && c.Status == corev1.ConditionTrue {
			work++
		}
	}
	if 2*work < len(s.nodes) {
		return failure{}, 0
	}
	if left = c.LastTransitionTime.Add(s.patience).Sub(s.now); left > 0 {
		return failure{}, left
	}
	return failure{reason: "OnDemandNodeLost", note: fmt.Sprintf(
		"the kubelet of node %s, instance %s, has not reported for %s: the machine is replaced",
		n.Name, s.instance.GetId(), s.now.Sub(c.LastTransitionTime.Time).Round(time.Minute))}, 0
}

// patience returns how long a machine may be without a working node: longer, the longer its pod
// had waited when the machine registered, so that replacements become rarer. This is known
// without memory, also after a restart.
func patience(startup time.Duration, i *nstancev1.InstanceStatus, pod metav1.Object) time.Duration {
	waited := i.GetRegisteredAt().AsTime().Sub(pod.GetCreationTimestamp().Time)
	return max(startup, min(waited/2, maxPatience))
}

func ready(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c
		}
	}
	return nil
}

// couldBe reports whether a Node may be an instance's: by its provider ID, which some kubelets
// set otherwise, by its name, or by an address.
func couldBe(n *corev1.Node, id string, i *nstancev1.InstanceStatus) bool {
	names := []string{i.GetId(), i.GetHostname(), i.GetProviderId()}
	short, _, _ := strings.Cut(n.Name, ".")
	if n.Spec.ProviderID != "" && (n.Spec.ProviderID == id || strings.HasSuffix(n.Spec.ProviderID, "/"+i.GetProviderId())) ||
		slices.Contains(names, n.Name) || slices.Contains(names, short) {
		return true
	}
	return slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool {
		return a.Address != "" && (slices.Contains(i.GetIps(), a.Address) || slices.Contains(names, a.Address))
	})
}
