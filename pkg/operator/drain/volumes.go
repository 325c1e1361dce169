package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// A volume that is still attached to a machine when that goes away can't be attached elsewhere
// for minutes: Kubernetes waits six before it detaches a volume by force. So it is waited for,
// as Cluster API's core does when it deletes a Machine.

// whyAttached is why a volume is waited for.
const whyAttached = "it is still attached"

// waitsForVolumes reports whether the volumes of a node that has been empty since then have to
// be detached. An unreachable kubelet unmounts nothing.
func waitsForVolumes(n *corev1.Node, m *clusterv1.Machine, empty, now time.Time) bool {
	if unreachable(n) {
		return false
	}
	if m == nil {
		return true
	}
	if _, excluded := m.Annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation]; excluded {
		return false
	}
	limit := m.Spec.Deletion.NodeVolumeDetachTimeoutSeconds
	return limit == nil || *limit == 0 || now.Sub(empty) < time.Duration(*limit)*time.Second
}

// attached returns the volumes that still have to be detached from an empty node, sorted. Those
// of pods that stay, such as a DaemonSet's, are detached only after the machine's end.
func attached(ctx context.Context, c kubernetes.Interface, n *corev1.Node) ([]leftover, error) {
	on, err := volumesOn(ctx, c, n)
	if err != nil || len(on) == 0 {
		return nil, err
	}
	kept, err := volumesKept(ctx, c, n)
	if err != nil {
		return nil, err
	}
	var left []leftover
	for _, name := range on {
		if !slices.Contains(kept, name) {
			left = append(left, leftover{pod: "volume " + name, why: whyAttached})
		}
	}
	return left, nil
}

// attachmentsAtOnce is the page size of a list of VolumeAttachments.
const attachmentsAtOnce = 500

// volumesOn returns the volumes attached to a node: those in its status, by the name that they
// have there, and the PersistentVolumes of its VolumeAttachments, of which the API server can
// list only all.
func volumesOn(ctx context.Context, c kubernetes.Interface, n *corev1.Node) ([]string, error) {
	var on []string
	for _, v := range n.Status.VolumesAttached {
		on = append(on, string(v.Name))
	}
	if len(on) > 0 {
		slices.Sort(on)
		return on, nil
	}
	for from := ""; ; {
		page, err := c.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{Limit: attachmentsAtOnce, Continue: from})
		if err != nil {
			return nil, fmt.Errorf("list VolumeAttachments: %w", err)
		}
		for i := range page.Items {
			a := &page.Items[i]
			if a.Spec.NodeName != n.Name || !a.Status.Attached {
				continue
			}
			name := a.Name
			if pv := a.Spec.Source.PersistentVolumeName; pv != nil {
				name = *pv
			}
			on = append(on, name)
		}
		if from = page.Continue; from == "" {
			slices.Sort(on)
			return slices.Compact(on), nil
		}
	}
}

// volumesKept returns the volumes of the pods on a node that its drain leaves there, under both
// names that volumesOn may return.
func volumesKept(ctx context.Context, c kubernetes.Interface, n *corev1.Node) ([]string, error) {
	pods, err := c.CoreV1().Pods(corev1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", n.Name).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", n.Name, err)
	}
	var kept []string
	for i := range pods.Items {
		p := &pods.Items[i]
		if completed(p) {
			continue
		}
		for _, claim := range claimsOf(p) {
			names, err := namesOf(ctx, c, p.Namespace, claim)
			if err != nil {
				return nil, err
			}
			kept = append(kept, names...)
		}
	}
	return kept, nil
}

// claimsOf returns the PersistentVolumeClaims of a pod.
func claimsOf(p *corev1.Pod) []string {
	var all []string
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			all = append(all, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			all = append(all, p.Name+"-"+v.Name)
		}
	}
	return all
}

// namesOf returns the names of a claim's PersistentVolume: its own, and the one in a node's
// status.
func namesOf(ctx context.Context, c kubernetes.Interface, namespace, claim string) ([]string, error) {
	pvc, err := c.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && pvc.Spec.VolumeName == "" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read claim %s/%s: %w", namespace, claim, err)
	}
	names := []string{pvc.Spec.VolumeName}
	pv, err := c.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return names, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read volume %s: %w", pvc.Spec.VolumeName, err)
	}
	if csi := pv.Spec.CSI; csi != nil {
		names = append(names, strings.Join([]string{"kubernetes.io", "csi", csi.Driver + "^" + csi.VolumeHandle}, "/"))
	}
	return names, nil
}
