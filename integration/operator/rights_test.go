//go:build integration

package operator

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
)

// grant grants the operator's user the permissions of config/rbac, in this story's namespace, and
// no others; and the ServiceAccount, with whose tokens Cluster API works on nodes, those of its own
// role.
func (f *fixture) grant() {
	f.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "nstance-capi-workload"}}
	if err := f.api.Create(f.Context(), account); err != nil {
		f.Fatal(err)
	}
	user := "nstance-operator-" + f.namespace
	f.write("operator.kubeconfig", f.plane.UserKubeconfig(f.T, user))
	files, err := filepath.Glob(filepath.Join(root(f.T), "config", "rbac", "*.yaml"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no roles in config/rbac: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---") {
			f.role(document)
		}
	}
	for _, role := range []string{"nstance-operator", "nstance-operator-kubeconfig"} {
		f.bind(role, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user})
	}
	f.bind("nstance-capi-workload", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: "nstance-capi-workload"})
}

// role creates a role of config/rbac; cluster roles get a name of this story's own.
func (f *fixture) role(document string) {
	f.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
		f.Fatal(err)
	}
	switch o.GetKind() {
	case "Role":
		o.SetNamespace(f.namespace)
	case "ClusterRole":
		o.SetName(o.GetName() + "-" + f.namespace)
	default:
		return // bindings are created here, ServiceAccounts elsewhere
	}
	if err := f.api.Create(f.Context(), o); err != nil {
		f.Fatal(err)
	}
}

// bind binds the roles of a name, if they exist.
func (f *fixture) bind(name string, to rbacv1.Subject) {
	f.Helper()
	cluster := &rbacv1.ClusterRoleBinding{Subjects: []rbacv1.Subject{to}}
	cluster.Name = name + "-" + f.namespace
	cluster.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: cluster.Name}
	here := &rbacv1.RoleBinding{Subjects: []rbacv1.Subject{to}}
	here.Namespace, here.Name = f.namespace, name
	here.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}
	if err := f.api.Create(f.Context(), cluster); err != nil {
		f.Fatal(err)
	}
	if err := f.api.Create(f.Context(), here); err != nil {
		f.Fatal(err)
	}
}

// elsewhere are permissions that no story is sure to use, but tests of the operator's packages do.
var elsewhere = map[planetest.Call]string{
	{Verb: "get", Resource: "namespaces"}:                                             "drain, TestMachineDrainRules",
	{Verb: "get", Resource: "persistentvolumeclaims"}:                                 "ondemand, TestShardSuitsPod",
	{Verb: "get", Resource: "persistentvolumes"}:                                      "ondemand, TestShardSuitsPod",
	{Verb: "get", Resource: "nodes"}:                                                  "drain, TestNoNode",
	{Verb: "get", Group: "batch", Resource: "jobs"}:                                   "ondemand, TestHeldPodGetsNoMachine",
	{Verb: "get", Group: "apps", Resource: "daemonsets"}:                              "drain, TestNodeIsEmptied",
	{Verb: "delete", Resource: "secrets"}:                                             "cluster, TestClusterDeletion",
	{Verb: "update", Resource: "secrets"}:                                             "secretstore, TestCAs",
	{Verb: "patch", Resource: "events"}:                                               "an event of an election that comes again",
	{Verb: "patch", Group: v1beta1.Group, Resource: "nstancemachinetemplates/status"}: "machine, TestTemplateShowsCapacity",
	{Verb: "delete", Group: v1beta1.Group, Resource: "nstancemachines"}:               "ondemand, TestCrashAtAnyWriteLeavesOneMachine",
	{Verb: "get", Group: v1beta1.Group, Resource: "nstancemachines"}:                  "pool, TestDeletedPoolKeepsRemainingInstances",
	{Verb: "delete", Group: v1beta1.Group, Resource: "nstanceshardgroups"}:            "pool, TestDeletedPoolWaitsForShards",
	// With OwnerReferencesPermissionEnforcement, it asks the authorizer.
	{Verb: "update", Group: v1beta1.Group, Resource: "nstancemachinepools/finalizers"}: "no call",
}

// rights checks, after all stories, that nothing was denied to the operator, and that it used every
// permission.
func rights() error {
	calls, err := shared.Calls()
	if err != nil {
		return err
	}
	used, errs := map[planetest.Call]bool{}, []error{}
	for _, call := range calls {
		if !strings.HasPrefix(call.User, "nstance-operator-") {
			continue
		}
		used[planetest.Call{Verb: call.Verb, Group: call.Group, Resource: call.Resource}] = true
		if call.Code == http.StatusForbidden {
			errs = append(errs, fmt.Errorf("denied: %s", call))
		}
	}
	has, err := granted(filepath.Join(planetest.Root(), "config", "rbac", "role.yaml"))
	if err != nil {
		return err
	}
	for _, right := range has {
		by := right
		switch right.Verb {
		case "list": // requested from an API server that can't begin a watch with it
			by.Verb = "watch"
		case "create": // a patch that applies an object which does not exist yet
			by.Verb = "patch"
		}
		if _, other := elsewhere[right]; !other && !used[right] && !used[by] {
			errs = append(errs, fmt.Errorf("the operator may, and never did: %s", right))
		}
	}
	return errors.Join(errs...)
}

// granted returns the calls that the roles in a file allow.
func granted(file string) (all []planetest.Call, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for document := range strings.SplitSeq(string(text), "\n---") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			return nil, err
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						all = append(all, planetest.Call{Verb: verb, Group: group, Resource: resource})
					}
				}
			}
		}
	}
	return all, nil
}
