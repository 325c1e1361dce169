package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycoordinationv1 "k8s.io/client-go/applyconfigurations/coordination/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/nstance/nstance/pkg/provider"
)

// fieldManager owns the fields that are applied here.
const fieldManager = "nstance-node"

// leaseSeconds is how long a Node counts as alive after a renewal of its lease.
const leaseSeconds = 40

// sync creates, updates and deletes Nodes until they match the machines.
func (k *syncer) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if err := k.open(); err != nil {
		return err
	}
	vms, err := k.cfg.Machines.List(ctx)
	if err != nil {
		return err
	}
	have, err := k.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{
		MatchLabels: ownerLabels(k.cfg.Scope),
	})})
	if err != nil {
		k.api = nil
		return err
	}
	return k.reconcile(ctx, vms, have.Items)
}

// open connects to the API server, if that is not done yet.
func (k *syncer) open() error {
	if k.api != nil {
		return nil
	}
	api, err := k.cfg.API()
	if err != nil {
		return err
	}
	version, err := api.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	k.api, k.version = api, version.GitVersion
	return nil
}

func (k *syncer) reconcile(ctx context.Context, vms []provider.VM, have []corev1.Node) error {
	byName := make(map[string]*corev1.Node, len(have))
	for i := range have {
		byName[have[i].Name] = &have[i]
	}
	var errs []error
	for _, vm := range vms {
		n := byName[string(vm.ID)]
		if vm.ID == "" || !vm.State.Alive() || n == nil && vm.State == provider.StatePending { // no kubelet would run yet
			continue
		}
		errs = append(errs, k.syncNode(ctx, vm, n))
		delete(byName, string(vm.ID))
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		errs = append(errs, k.remove(ctx, byName[name]))
	}
	return errors.Join(errs...)
}

// syncNode makes one Node exist, be ready, and renew its lease. n is nil if there is none yet.
func (k *syncer) syncNode(ctx context.Context, vm provider.VM, n *corev1.Node) (err error) {
	switch {
	case n == nil:
		n, err = k.create(ctx, vm)
	case !k.upToDate(n, vm):
		n, err = k.apply(ctx, vm)
	}
	if err != nil {
		return err
	}
	if err := k.untaint(ctx, n); err != nil {
		return err
	}
	return k.renewLease(ctx, n)
}

// create creates a Node with its status, as a kubelet does, so that no Node without a status is
// ever visible.
func (k *syncer) create(ctx context.Context, vm provider.VM) (*corev1.Node, error) {
	whole := &corev1.Node{}
	text, err := json.Marshal(k.spec(vm).WithStatus(k.status(vm)))
	if err == nil {
		err = json.Unmarshal(text, whole)
	}
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", vm.ID, err)
	}
	n, err := k.api.CoreV1().Nodes().Create(ctx, whole, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		return k.adopt(ctx, vm)
	}
	return n, err
}

// adopt updates an existing Node that lacks the owner's labels. A Node with the labels of another
// shard is an error.
func (k *syncer) adopt(ctx context.Context, vm provider.VM) (*corev1.Node, error) {
	n, err := k.api.CoreV1().Nodes().Get(ctx, string(vm.ID), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for label, ours := range ownerLabels(k.cfg.Scope) {
		if theirs := n.Labels[label]; theirs != "" && theirs != ours {
			return nil, fmt.Errorf("node %s: label %s is %q, want %q: it is another shard's", vm.ID, label, theirs, ours)
		}
	}
	return k.apply(ctx, vm)
}

// apply updates an existing Node from its machine.
func (k *syncer) apply(ctx context.Context, vm provider.VM) (*corev1.Node, error) {
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := k.api.CoreV1().Nodes().Apply(ctx, k.spec(vm), options); err != nil {
		return nil, err
	}
	return k.api.CoreV1().Nodes().ApplyStatus(ctx, nodeFor(vm).WithStatus(k.status(vm)), options)
}

// untaint removes the taint that keeps pods off a new Node, unless the Node has changed since it
// was read. The node lifecycle controller would do so too, but some control planes run without it.
func (k *syncer) untaint(ctx context.Context, n *corev1.Node) error {
	rest := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
	if len(rest) == len(n.Spec.Taints) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": n.ResourceVersion}, "spec": map[string]any{"taints": rest},
	})
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	_, err = k.api.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	return err
}

// remove deletes a Node, unless it was replaced since it was read.
func (k *syncer) remove(ctx context.Context, n *corev1.Node) error {
	err := k.api.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(n.UID))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// renewLease is the Node's heartbeat.
func (k *syncer) renewLease(ctx context.Context, n *corev1.Node) error {
	lease := applycoordinationv1.Lease(n.Name, corev1.NamespaceNodeLease).
		WithOwnerReferences(applymetav1.OwnerReference().WithAPIVersion("v1").WithKind("Node").WithName(n.Name).WithUID(n.UID)).
		WithSpec(applycoordinationv1.LeaseSpec().
			WithHolderIdentity(n.Name).WithLeaseDurationSeconds(leaseSeconds).WithRenewTime(metav1.NewMicroTime(k.cfg.Now())))
	_, err := k.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Apply(ctx, lease,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}
