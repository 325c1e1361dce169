package operator_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/registration/registrationtest"
)

// named are resources of which the operator needs only certain ones, and of which its namespace may
// have others, with their default names.
func named() map[string][]string {
	return map[string][]string{
		"secrets": {
			"example-cluster--default-kubeconfig", "nstance-operator-cert", "nstance-operator-key", "nstance-operator-nonce",
		},
		"configmaps":            {"nstance-cluster-ca"},
		"serviceaccounts/token": {"nstance-capi-workload"},
		"leases":                {"nstance-operator-cert", "nstance-operator-leader-election"},
	}
}

// TestRightsByName: other objects in the namespace are out of the operator's reach. Kubernetes does
// not know the name of an object to be created, except for a subresource.
func TestRightsByName(t *testing.T) {
	text, err := os.ReadFile("../../config/rbac/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]map[string]bool{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var role rbacv1.Role
		if err := yaml.UnmarshalStrict([]byte(document), &role); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				want, ok := named()[resource]
				if !ok {
					continue
				}
				if role.Kind != "Role" {
					t.Errorf("%s are granted in the whole cluster: %+v", resource, rule)
				}
				if slices.Equal(rule.Verbs, []string{"create"}) && !strings.Contains(resource, "/") {
					continue
				}
				if len(rule.ResourceNames) == 0 || len(rule.Resources) > 1 {
					t.Errorf("%s of %s: any of them: %+v", resource, role.Name, rule)
				}
				for _, name := range rule.ResourceNames {
					if !slices.Contains(want, name) {
						t.Errorf("%s %s is none of %v", resource, name, want)
					}
					if seen[resource] == nil {
						seen[resource] = map[string]bool{}
					}
					seen[resource][name] = true
				}
			}
		}
	}
	for resource, want := range named() {
		if have := slices.Sorted(maps.Keys(seen[resource])); !slices.Equal(have, want) {
			t.Errorf("of %s the rights name %v, want %v", resource, have, want)
		}
	}
}

// TestTheKubeconfigIsAnothers: an operator whose role names the kubeconfig of another cluster ends
// at once, and reports the name in the role.
func TestTheKubeconfigIsAnothers(t *testing.T) {
	f := newFixture(t)
	f.given(true)
	f.rest = f.plane.User(t, "operator-without-names-in-"+f.namespace)
	err := f.start().wait()
	name := capi.KubeconfigName(capi.ClusterName(registrationtest.Name, "default"))
	if err == nil || !strings.Contains(err.Error(), "may not read the Secret "+f.namespace+"/"+name) ||
		!strings.Contains(err.Error(), "nstance-operator-kubeconfig") {
		t.Errorf("it ended with %v", err)
	}
}
