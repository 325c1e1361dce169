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

// podOn creates a pod of an app that is bound to a node, and waits until it runs.
func (f *fixture) podOn(node, app, name string) *corev1.Pod {
	f.Helper()
	p := f.pod(name, func(p *corev1.Pod) {
		p.Annotations, p.Labels = nil, map[string]string{"app": app}
		p.Spec.NodeSelector, p.Spec.SchedulingGates, p.Spec.NodeName = nil, nil, node
	})
	f.runs(p)
	return p
}

// runs waits until a pod is ready.
func (f *fixture) runs(p *corev1.Pod) {
	f.Helper()
	f.eventually("the pod "+p.Name+" runs", func(ctx context.Context) error {
		if err := f.get(ctx, p.Name, p); err != nil {
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

// budget creates a budget that requires one pod of an app, and waits until it counts the present
// one.
func (f *fixture) budget(app string) {
	f.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: app + "-budget"}}
	b.Spec.MinAvailable = new(intstr.FromInt32(1))
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	if err := f.api.Create(f.Context(), b); err != nil {
		f.Fatal(err)
	}
	f.eventually("the budget counts its pod", func(ctx context.Context) error {
		err := f.get(ctx, b.Name, b)
		if err == nil && b.Status.CurrentHealthy != 1 {
			err = fmt.Errorf("%+v", b.Status)
		}
		return err
	})
}

// untouched returns an error if a pod was evicted.
func (f *fixture) untouched(ctx context.Context, p *corev1.Pod) error {
	if err := f.get(ctx, p.Name, p); err != nil {
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

// there reports whether an object exists.
func (f *fixture) there(ctx context.Context, name string, o client.Object) (bool, error) {
	err := f.get(ctx, name, o)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// event waits for an event with a reason on an object, whose note has all the parts.
func (f *fixture) event(reason, kind, name string, parts ...string) {
	f.Helper()
	f.eventually(fmt.Sprintf("an event %s on the %s %s", reason, kind, name), func(ctx context.Context) error {
		var others []string
		for _, ns := range []string{f.namespace, metav1.NamespaceDefault} {
			var all eventsv1.EventList
			if err := f.api.List(ctx, &all, client.InNamespace(ns)); err != nil {
				return err
			}
			for _, e := range all.Items {
				if e.Regarding.Kind != kind || e.Regarding.Name != name {
					continue
				}
				if e.Reason == reason && hasAll(e.Note, parts) {
					f.Logf("%s on %s %s: %s", reason, kind, name, e.Note)
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
