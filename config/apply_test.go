package config_test

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/planetest"
)

// apply is what kubectl apply --server-side does, which refuses fields that are not
// known.
func apply(t *testing.T, api client.Client, all []*unstructured.Unstructured, options ...client.ApplyOption) {
	t.Helper()
	options = append(options, client.FieldOwner("kubectl"), client.ForceOwnership)
	strict := client.WithFieldValidation(api, metav1.FieldValidationStrict)
	for _, o := range all {
		if err := strict.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o.DeepCopy()), options...); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// TestInstalled: what is installed on a real API server, on which nothing else is.
func TestInstalled(t *testing.T) {
	plane := planetest.Own(t) // to start three for what follows one another takes long
	t.Run("the API server takes all", func(t *testing.T) { takesAll(t, plane.Client) })
	t.Run("what the service accounts may", func(t *testing.T) { whatTheServiceAccountsMay(t, plane.Client) })
	t.Run("what the operator may change of pods", func(t *testing.T) { podsOfTheOperator(t, plane) })
	t.Run("commands of the page", func(t *testing.T) { commandsOfThePage(t, plane) })
}

// takesAll: every object, its fields and its names; a second time too, as at an upgrade;
// and for another tenant.
func takesAll(t *testing.T, api client.Client) {
	all := build(t, "default")
	apply(t, api, all[:1]) // the namespace, without which nothing of it can be tried
	if all[0].GetKind() != "Namespace" {
		t.Errorf("the first is %s %s", all[0].GetKind(), all[0].GetName())
	}
	apply(t, api, all, client.DryRunAll)
	apply(t, api, all)
	apply(t, api, all)
	apply(t, api, build(t, "crd"))
	apply(t, api, another(t))
	if t.Failed() {
		return
	}

	// The namespace admits the pod, which has to be as restricted as it asks for.
	for _, ns := range []string{namespace, second} {
		d, _ := deployment(t, all)
		pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
		pod.Namespace, pod.Name = ns, "operator"
		if err := api.Create(t.Context(), pod); err != nil {
			t.Error(err)
		}
		open := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "open"}}
		open.Spec.Containers = []corev1.Container{{Name: "open", Image: "open"}}
		if err := api.Create(t.Context(), open, client.DryRunAll); err == nil {
			t.Errorf("%s takes any pod: what it says of the operator's means nothing", ns)
		}
	}
}

// whatTheServiceAccountsMay: some of what they need, and nothing of what is others'.
func whatTheServiceAccountsMay(t *testing.T, api client.Client) {
	apply(t, api, build(t, "default"))
	for _, c := range []struct {
		who, ns, verb, group, resource, sub, name string
		may                                       bool
	}{
		{"nstance-operator", "", "list", "", "nodes", "", "", true},
		{"nstance-operator", "", "watch", "", "pods", "", "", true},
		{"nstance-operator", "kube-system", "create", "", "pods", "eviction", "", true},
		{"nstance-operator", namespace, "create", "", "serviceaccounts", "token", "nstance-capi-workload", true},
		{"nstance-operator", namespace, "create", "", "serviceaccounts", "token", "default", false},
		{"nstance-operator", namespace, "create", "", "secrets", "", "", true},
		{"nstance-operator", namespace, "get", "", "secrets", "", "nstance-operator-nonce", true},
		{"nstance-operator", namespace, "update", "", "secrets", "", "nstance-operator-nonce", false},
		{"nstance-operator", namespace, "update", "", "secrets", "", "nstance-operator-cert", true},
		{"nstance-operator", namespace, "patch", "", "secrets", "", "example-cluster--default-kubeconfig", true},
		{"nstance-operator", namespace, "list", "", "secrets", "", "example-cluster--default-kubeconfig", true},
		{"nstance-operator", namespace, "list", "", "secrets", "", "", false},
		{"nstance-operator", namespace, "get", "", "secrets", "", "another", false},
		{"nstance-operator", namespace, "delete", "", "secrets", "", "another", false},
		{"nstance-operator", namespace, "get", "", "configmaps", "", "another", false},
		{"nstance-operator", namespace, "update", "coordination.k8s.io", "leases", "", "nstance-operator-leader-election", true},
		{"nstance-operator", namespace, "update", "coordination.k8s.io", "leases", "", "another", false},
		{"nstance-operator", namespace, "create", "cluster.x-k8s.io", "machinepools", "", "", true},
		{"nstance-operator", "kube-system", "get", "", "secrets", "", "", false},
		{"nstance-operator", "kube-system", "create", "", "serviceaccounts", "token", "", false},
		{"nstance-operator", "", "delete", "", "nodes", "", "", false},
		{"nstance-operator", "kube-system", "delete", "", "pods", "", "", false},
		{"nstance-capi-workload", "", "delete", "", "nodes", "", "", true},
		{"nstance-capi-workload", namespace, "get", "", "secrets", "", "", false},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + namespace + ":" + c.who,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: c.ns, Verb: c.verb, Group: c.group, Resource: c.resource, Subresource: c.sub, Name: c.name,
			},
		}}
		if err := api.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != c.may {
			t.Errorf("%+v: allowed: %v: %s", c, review.Status.Allowed, review.Status.Reason)
		}
	}
}
