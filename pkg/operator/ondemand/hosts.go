package ondemand

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/workload"
)

// hosting is what a machine hosts, read from the API server.
type hosting struct {
	// seen: the machine has a Node.
	seen bool
	// pods are those that have to leave before the machine can go.
	pods []corev1.Pod
}

// identityOf returns what identifies the Nodes that may be a machine's: also one that its kubelet
// registered with another provider ID.
func identityOf(m *v1beta1.NstanceMachine) workload.Identity {
	hostname := ""
	for _, a := range m.Status.Addresses {
		if a.Type == clusterv1.MachineHostName {
			hostname = a.Address
		}
	}
	return workload.Identify(m.Spec.ProviderID, string(m.Spec.InstanceID), hostname, nil)
}

// hosts reads what a claim's machine hosts.
func hosts(ctx context.Context, w Workload, c claim) (hosting, error) {
	var h hosting
	if c.infrastructure == nil || c.infrastructure.Spec.InstanceID == "" {
		return h, nil // there is no machine
	}
	names, err := nodesOf(ctx, w, identityOf(c.infrastructure))
	if err != nil {
		return h, fmt.Errorf("find the node of %s: %w", c.name(), err)
	}
	for _, name := range names {
		h.seen = true
		var pods corev1.PodList
		if err := w.Reader().List(ctx, &pods, client.MatchingFields{"spec.nodeName": name}); err != nil {
			return h, fmt.Errorf("list the pods on node %s: %w", name, err)
		}
		h.pods = append(h.pods, slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !leaves(&p) })...)
	}
	return h, nil
}

// nodesAtOnce is the page size of a list of Nodes.
const nodesAtOnce = 500

// nodesOf returns the names of the Nodes that may be a machine's: what the cache has, if the
// API server has it too, or else those among all Nodes.
func nodesOf(ctx context.Context, w Workload, i workload.Identity) (names []string, err error) {
	cached, err := w.NodesWith(ctx, i)
	if err != nil {
		return nil, err
	}
	for _, name := range namesOf(cached) {
		var node corev1.Node
		err := w.Reader().Get(ctx, client.ObjectKey{Name: name}, &node)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && i.MayBe(&node) {
			names = append(names, name)
		}
	}
	for from := ""; len(names) == 0; {
		var page corev1.NodeList
		if err := w.Reader().List(ctx, &page, client.Limit(nodesAtOnce), client.Continue(from)); err != nil {
			return nil, err
		}
		for n := range page.Items {
			if i.MayBe(&page.Items[n]) {
				names = append(names, page.Items[n].Name)
			}
		}
		if from = page.Continue; from == "" {
			break
		}
	}
	return names, nil
}

func namesOf(nodes []corev1.Node) (names []string) {
	for i := range nodes {
		names = append(names, nodes[i].Name)
	}
	return names
}

// on reports whether a node is a claim's machine, as far as the cache has it.
func on(ctx context.Context, w Workload, c claim, node string) (bool, error) {
	if node == "" || c.infrastructure == nil {
		return false, nil
	}
	n := corev1.Node{}
	n.Name = node
	if err := w.Client().Get(ctx, client.ObjectKey{Name: node}, &n); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read node %s: %w", node, err)
	}
	is := identityOf(c.infrastructure)
	return is.MayBe(&n), nil
}

// elsewhere reports whether a node exists and is none of a group's on-demand machines. The
// cache may not have the newest machines.
func (r *Reconciler) elsewhere(ctx context.Context, node, group string) (bool, error) {
	if node == "" {
		return false, nil
	}
	var n corev1.Node
	if err := r.Workload.Reader().Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	for _, reader := range []client.Reader{r.Client, r.Reader} {
		var all v1beta1.NstanceMachineList
		err := reader.List(ctx, &all, client.InNamespace(r.Cluster.Namespace), client.HasLabels{LabelPodUID}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(all.Items, func(m v1beta1.NstanceMachine) bool {
			is := identityOf(&m)
			return string(m.Spec.Group) == group && is.MayBe(&n)
		}) {
			return false, nil
		}
	}
	return true, nil
}
