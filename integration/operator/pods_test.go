//go:build integration

package operator

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podOn makes a pod of an app that is bound to a node, and waits until it runs.
func (w *world) podOn(node, app, name string) *corev1.Pod {
	w.Helper()
	p := w.pod(name, func(p *corev1.Pod) {
		p.Annotations, p.Labels = nil, map[string]string{"app": app}
		p.Spec.NodeSelector, p.Spec.NodeName = nil, node
	})
	w.runs(p)
	return p
}

// runs waits until a pod is ready.
func (w *world) runs(p *corev1.Pod) {
	w.Helper()
	w.eventually("the pod "+p.Name+" runs", func(ctx context.Context) error {
		if err := w.get(ctx, p.Name, p); err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("phase %s, %v", p.Status.Phase, p.Status.Conditions)
	})
}

// budget lets no pod of an app go while there is no other one, and waits until it
// counts the one that there is.
func (w *world) budget(app string) {
	w.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: app + "-budget"}}
	b.Spec.MinAvailable = new(intstr.FromInt32(1))
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	if err := w.api.Create(w.Context(), b); err != nil {
		w.Fatal(err)
	}
	w.eventually("the budget counts its pod", func(ctx context.Context) error {
		err := w.get(ctx, b.Name, b)
		if err == nil && b.Status.CurrentHealthy != 1 {
			err = fmt.Errorf("%+v", b.Status)
		}
		return err
	})
}

// untouched is an error when somebody has asked a pod to go.
func (w *world) untouched(ctx context.Context, p *corev1.Pod) error {
	if err := w.get(ctx, p.Name, p); err != nil {
		return err
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			return fmt.Errorf("the pod %s is to go: %s %s", p.Name, c.Reason, c.Message)
		}
	}
	if p.DeletionTimestamp != nil {
		return fmt.Errorf("the pod %s is being deleted", p.Name)
	}
	return nil
}

// there reports whether an object is there.
func (w *world) there(ctx context.Context, name string, o client.Object) (bool, error) {
	err := w.get(ctx, name, o)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// event waits for an event with a reason on an object, whose note has all the parts.
func (w *world) event(reason, kind, name string, parts ...string) {
	w.Helper()
	w.eventually(fmt.Sprintf("an event %s on the %s %s", reason, kind, name), func(ctx context.Context) error {
		var others []string
		for _, ns := range []string{w.namespace, metav1.NamespaceDefault} {
			var all eventsv1.EventList
			if err := w.api.List(ctx, &all, client.InNamespace(ns)); err != nil {
				return err
			}
			for _, e := range all.Items {
				if e.Regarding.Kind != kind || e.Regarding.Name != name {
					continue
				}
				if e.Reason == reason && hasAll(e.Note, parts) {
					w.Logf("%s on %s %s: %s", reason, kind, name, e.Note)
					return nil
				}
				others = append(others, e.Reason+": "+e.Note)
			}
		}
		return fmt.Errorf("there are %q", others)
	})
}

func hasAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
