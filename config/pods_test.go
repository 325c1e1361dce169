package config_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/planetest"
)

// podsOfTheOperator: a policy lets the operator bind a pod that has its gate to a node, and change
// nothing else of it, nor any other pod. It does not concern other users.
func podsOfTheOperator(t *testing.T, plane *planetest.Plane) {
	apply(t, plane.Client, build(t, "default"))
	as := rest.CopyConfig(plane.Config)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":nstance-operator",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	operator, err := client.New(as, client.Options{Scheme: plane.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	gated, open := podIn(t, plane, "gated", "nstance.dev/machine"), podIn(t, plane, "open", "example.com/other")
	change := func(api client.Client, p *corev1.Pod, edit func(*corev1.Pod)) error {
		to := p.DeepCopy()
		edit(to)
		return api.Patch(t.Context(), to, client.MergeFrom(p), client.DryRunAll)
	}
	label := func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }
	bind := func(p *corev1.Pod) {
		p.Spec.NodeSelector, p.Spec.SchedulingGates = map[string]string{"uid": "u"}, nil
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "uid", Operator: "Exists"})
	}
	// A new policy is not in force at once.
	planetest.Eventually(t, time.Minute, "the policy is in force", func(context.Context) error {
		if err := change(operator, open, label); !apierrors.IsInvalid(err) {
			return fmt.Errorf("a label of a pod without the gate: %w", err)
		}
		return nil
	})
	if err := change(operator, gated, bind); err != nil {
		t.Errorf("bind a pod with the gate: %v", err)
	}
	deadline := func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(1)) }
	for what, test := range map[string]struct {
		pod  *corev1.Pod
		edit func(*corev1.Pod)
		want string
	}{
		"bind another pod": {open, bind, "only change pods that have the scheduling gate nstance.dev/machine"},
		"a label":          {gated, label, "may not change a pod's metadata"},
		"an annotation":    {gated, func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }, "may not change a pod's metadata"},
		"a finalizer":      {gated, func(p *corev1.Pod) { p.Finalizers = []string{"example.com/a"} }, "may not change a pod's metadata"},
		"an image":         {gated, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "evil" }, "only change nodeSelector, tolerations"},
		"an init image":    {gated, func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "evil" }, "only change nodeSelector, tolerations"},
		"a deadline":       {gated, deadline, "only change nodeSelector, tolerations"},
	} {
		if err := change(operator, test.pod, test.edit); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", what, err, test.want)
		}
		if what == "bind another pod" {
			continue
		}
		if err := change(plane.Client, test.pod, test.edit); err != nil {
			t.Errorf("%s, by another user: %v", what, err)
		}
	}
}

// podIn creates a pod with a scheduling gate.
func podIn(t *testing.T, plane *planetest.Plane, name, gate string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "a", Image: "a"}}, InitContainers: []corev1.Container{{Name: "i", Image: "i"}},
		SchedulingGates: []corev1.PodSchedulingGate{{Name: gate}},
	}}
	if err := plane.Client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}
