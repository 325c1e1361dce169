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

// grant gives the operator's user the rights of config/rbac, in this story's namespace,
// and nothing else; and the ServiceAccount, with whose tokens Cluster API works on
// nodes, those of its own role.
func (w *world) grant() {
	w.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "nstance-capi-workload"}}
	if err := w.api.Create(w.Context(), account); err != nil {
		w.Fatal(err)
	}
	user := "nstance-operator-" + w.namespace
	w.write("operator.kubeconfig", w.plane.UserKubeconfig(w.T, user))
	files, err := filepath.Glob(filepath.Join(root(w.T), "config", "rbac", "*.yaml"))
	if err != nil || len(files) == 0 {
		w.Fatalf("no roles in config/rbac: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			w.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---") {
			w.role(document)
		}
	}
	w.bind("nstance-operator", rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user})
	w.bind("nstance-capi-workload", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "nstance-capi-workload"})
}

// role makes a role of config/rbac: those of the whole cluster under a name of this
// story's own.
func (w *world) role(document string) {
	w.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
		w.Fatal(err)
	}
	switch o.GetKind() {
	case "Role":
		o.SetNamespace(w.namespace)
	case "ClusterRole":
		o.SetName(o.GetName() + "-" + w.namespace)
	default:
		return // bindings are made here, ServiceAccounts there are
	}
	if err := w.api.Create(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

// bind binds the roles of a name, as far as there are any.
func (w *world) bind(name string, to rbacv1.Subject) {
	w.Helper()
	cluster := &rbacv1.ClusterRoleBinding{Subjects: []rbacv1.Subject{to}}
	cluster.Name = name + "-" + w.namespace
	cluster.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: cluster.Name}
	here := &rbacv1.RoleBinding{Subjects: []rbacv1.Subject{to}}
	here.Namespace, here.Name = w.namespace, name
	here.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}
	if err := w.api.Create(w.Context(), cluster); err != nil {
		w.Fatal(err)
	}
	if err := w.api.Create(w.Context(), here); err != nil {
		w.Fatal(err)
	}
}

// elsewhere are rights that no story is sure to use: tests of the operator's packages do.
var elsewhere = map[planetest.Call]string{
	{Verb: "get", Resource: "namespaces"}:                                             "drain, TestMachineDrainRules",
	{Verb: "get", Resource: "nodes"}:                                                  "drain, TestNoNode",
	{Verb: "get", Group: "apps", Resource: "daemonsets"}:                              "drain, TestNodeIsEmptied",
	{Verb: "delete", Resource: "secrets"}:                                             "cluster, TestADeletedClusterIsLetGo",
	{Verb: "update", Resource: "secrets"}:                                             "secretstore, TestCAs",
	{Verb: "patch", Resource: "events"}:                                               "an event of an election that comes again",
	{Verb: "patch", Group: v1beta1.Group, Resource: "nstancemachinetemplates/status"}: "machine, TestATemplateShowsWhatItsMachinesHave",
	{Verb: "delete", Group: v1beta1.Group, Resource: "nstancemachines"}:               "ondemand, TestACrashAtAnyStepLeavesOneMachine",
	{Verb: "get", Group: v1beta1.Group, Resource: "nstancemachines"}:                  "pool, TestADeletedPoolLeavesLivingMachinesAlone",
	{Verb: "delete", Group: v1beta1.Group, Resource: "nstanceshardgroups"}:            "pool, TestADeletedPoolWaitsForItsShards",
	// Where OwnerReferencesPermissionEnforcement is on, it asks the authorizer.
	{Verb: "update", Group: v1beta1.Group, Resource: "nstancemachinepools/finalizers"}: "no call",
}

// rights holds, after all stories, that nothing was denied to the operator, and that no
// right that it has is one that it never used.
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
		case "list": // what an API server is asked for that can't begin a watch with it
			by.Verb = "watch"
		case "create": // what applying takes, a patch, where there is nothing yet
			by.Verb = "patch"
		}
		if _, other := elsewhere[right]; !other && !used[right] && !used[by] {
			errs = append(errs, fmt.Errorf("the operator may, and never did: %s", right))
		}
	}
	return errors.Join(errs...)
}

// granted are the calls that the roles in a file allow.
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
