package ondemand

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// attend serves a pod: its claims are taken back as far as it does not need them, or else one
// is completed, and the pod is bound to it if it has the operator's gate.
func (r *Reconciler) attend(ctx context.Context, pod *metav1.PartialObjectMetadata, claims []claim) (after time.Duration, err error) {
	if len(claims) == 0 {
		return r.serve(ctx, pod, claim{})
	}
	l, after, err := r.look(ctx, pod)
	if err != nil || after > 0 {
		return after, err
	}
	at, err := first(ctx, r.Workload, claims, l.node)
	if err != nil {
		return 0, err
	}
	if after, err = r.takeOthers(ctx, claims, at); err != nil {
		return 0, err
	}
	c := claims[max(at, 0)]
	if c.whole() && ownerOf(c.infrastructure) != c.owner() { // handed over only in part
		later, err := retried(own(ctx, r.Client, c.infrastructure.DeepCopy(), c.owner(), client.ObjectKeyFromObject(pod)))
		return sooner(after, later), err
	}
	later, done, err := r.giveBack(ctx, pod, c, l, at >= 0)
	if err != nil || done {
		return sooner(after, later), err
	}
	after = sooner(after, later)
	if later, err = r.serve(ctx, pod, c); err == nil && c.whole() && (l.gated || l.bound && l.node == "") {
		later, err = r.bind(ctx, pod, c, l)
	}
	return sooner(after, later), err
}

// first returns the index of the claim whose machine a node is; -1: none.
func first(ctx context.Context, w Workload, claims []claim, node string) (int, error) {
	for i, c := range claims {
		if is, err := on(ctx, w, c, node); err != nil || is {
			return i, err
		}
	}
	return -1, nil
}

// takeOthers takes back what a pod has beside the machine that it is on, or beside its first.
func (r *Reconciler) takeOthers(ctx context.Context, claims []claim, at int) (after time.Duration, err error) {
	for i, c := range claims {
		if i == max(at, 0) {
			continue
		}
		later, err := r.reclaim(ctx, c, at >= 0)
		if err != nil {
			return 0, err
		}
		after = sooner(after, later)
	}
	return after, nil
}

// giveBack takes back the machine of a pod that does not need it. done: that is decided.
func (r *Reconciler) giveBack(
	ctx context.Context, pod *metav1.PartialObjectMetadata, c claim, l look, there bool,
) (after time.Duration, done bool, err error) {
	a, asked := asks(pod)
	if c.machine == nil && (!asked || a.group != c.group()) {
		return 0, true, r.unmake(ctx, c)
	}
	if !c.whole() || there && l.ended.IsZero() {
		return 0, false, nil
	}
	other, err := r.elsewhere(ctx, l.node, c.group())
	if err != nil {
		return 0, false, err
	}
	if _, err := a.keeps(); asked && !l.ended.IsZero() && err != nil {
		r.recordEvent(pod, corev1.EventTypeWarning, "OnDemandKept", "the pod has ended, but keeps its machine until it is deleted: "+err.Error())
	}
	u := needless(a, asked, c.group(), l, other, r.Now())
	switch {
	case u == nil:
		return 0, false, nil
	case u.after > 0:
		return u.after, true, nil
	}
	if after, err = r.reclaim(ctx, c, u.certain); err == nil && after == 0 {
		r.recordEvent(pod, corev1.EventTypeNormal, "OnDemandReturned", "the pod has given its machine back: "+u.why)
	}
	return after, true, err
}
