package ondemand

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// lookPause is how soon a changed pod is read in full again, unless it waits for the gate to
// be lifted: what a pod's instance depends on is not urgent then.
const lookPause = 2 * time.Second

// look is what the life of a pod's instance depends on, as of one version of the pod.
type look struct {
	uid     types.UID
	version string
	node    string
	gated   bool      // by the operator's own gate
	bound   bool      // it selects the Node that is reserved for it
	gates   []string  // the others
	ended   time.Time // zero: it has not
	at      time.Time // when it was read
}

func lookAt(p *corev1.Pod, now time.Time) look {
	l := look{uid: p.UID, version: p.ResourceVersion, node: p.Spec.NodeName, gates: othersGates(p), at: now}
	l.gated = len(l.gates) < len(p.Spec.SchedulingGates)
	l.bound = p.Spec.NodeSelector[v1beta1.LabelNodePodUID] == string(p.UID)
	if ended(p) {
		l.ended = endOf(p)
	}
	return l
}

// othersGates returns a pod's scheduling gates except the operator's own.
func othersGates(p *corev1.Pod) (names []string) {
	for _, g := range p.Spec.SchedulingGates {
		if g.Name != v1beta1.GateMachine {
			names = append(names, g.Name)
		}
	}
	return names
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// endOf returns when a pod ended: the latest time that it mentions.
func endOf(p *corev1.Pod) time.Time {
	at := p.CreationTimestamp.Time
	later := func(t metav1.Time) {
		if t.After(at) {
			at = t.Time
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated != nil {
			later(c.State.Terminated.FinishedAt)
		}
	}
	for _, c := range p.Status.Conditions {
		later(c.LastTransitionTime)
	}
	return at
}

// looks are the last ones, by pod. It is safe for concurrent use; the zero value is ready.
type looks struct{ all sync.Map }

func (l *looks) of(pod types.NamespacedName) (look, bool) {
	one, ok := l.all.Load(pod)
	if !ok {
		return look{}, false
	}
	last, ok := one.(look)
	return last, ok
}

// look returns what is known of a pod, of which only the metadata is cached: it is read in
// full when it has changed. If after is not zero, it was read only just before the change.
func (r *Reconciler) look(ctx context.Context, pod *metav1.PartialObjectMetadata) (l look, after time.Duration, err error) {
	key := client.ObjectKeyFromObject(pod)
	l, ok := r.looks.of(key)
	if ok = ok && l.uid == pod.UID; ok && l.version == pod.ResourceVersion {
		return l, 0, nil
	}
	if left := lookPause - r.Now().Sub(l.at); ok && left > 0 && !l.gated {
		return l, left, nil
	}
	var now corev1.Pod
	if err := r.Workload.Reader().Get(ctx, key, &now); err != nil {
		return look{}, again, client.IgnoreNotFound(err)
	}
	if now.UID != pod.UID {
		return look{}, again, nil // the cache follows
	}
	return r.remember(&now), 0, nil
}

func (r *Reconciler) remember(pod *corev1.Pod) look {
	l := lookAt(pod, r.Now())
	r.looks.all.Store(client.ObjectKeyFromObject(pod), l)
	return l
}

// unneeded is why a pod no longer needs its machine.
type unneeded struct {
	why string
	// after is when that is so; zero: now.
	after time.Duration
	// certain: also if others are on the machine. They are drained.
	certain bool
}

// needless judges a pod that is not on its own machine or has ended; nil: it needs the
// machine. elsewhere: its node is none of its group's on-demand machines.
func needless(a ask, asks bool, group string, l look, elsewhere bool, now time.Time) *unneeded {
	keep, err := a.keeps()
	switch {
	case asks && !l.ended.IsZero() && err != nil:
		return nil // until it is deleted: how long it was to be kept is unknown
	case !l.ended.IsZero():
		return &unneeded{why: "the pod has ended", after: max(0, l.ended.Add(keep).Sub(now)), certain: true}
	case !asks || a.group != group:
		return &unneeded{why: fmt.Sprintf("the pod no longer has annotation %s with the value %s", v1beta1.AnnotationOnDemandGroup, group)}
	case len(l.gates) > 0:
		return &unneeded{why: "the pod is held by spec.schedulingGates " + strings.Join(l.gates, ", ")}
	case elsewhere:
		return &unneeded{why: fmt.Sprintf("the pod was scheduled to node %s, which is no on-demand machine of group %s", l.node, group)}
	}
	return nil
}

// leaves reports whether a pod has to leave a node before its machine can go. Pods of a
// DaemonSet and of the kubelet belong to the node.
func leaves(p *corev1.Pod) bool {
	if _, static := p.Annotations[mirror]; static || ended(p) {
		return false
	}
	return !slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" || o.Kind == "Node" })
}
