//go:build integration

package chart_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nstance/nstance/pkg/operator/planetest"
)

const release = "nstance-operator"

// patience bounds what the API server does by itself.
const patience = 3 * time.Minute

// cluster is a real API server without the kinds, for Helm to install on.
type cluster struct {
	*testing.T
	module     string
	namespace  string
	kubeconfig string
	api        client.Client
}

// newCluster returns a namespace that admits restricted pods only, on an API server of its own
// without the kinds, which the chart installs. Deleting kinds from an API server that has just
// begun to serve them may take minutes.
func newCluster(t *testing.T, module string) *cluster {
	t.Helper()
	plane := planetest.Bare(t)
	c := &cluster{T: t, module: module, api: plane.Client, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := os.WriteFile(c.kubeconfig, plane.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	c.namespace = plane.Namespace(t)
	labelled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	patch := client.RawPatch(mergePatch, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	if err := c.api.Patch(t.Context(), labelled, patch); err != nil {
		t.Fatal(err)
	}
	return c
}

const mergePatch = "application/merge-patch+json"

// found returns the names of the provider's kinds that are installed.
func (c *cluster) found() map[string]apiextensionsv1.CustomResourceDefinition {
	c.Helper()
	var all apiextensionsv1.CustomResourceDefinitionList
	if err := c.api.List(c.Context(), &all); err != nil {
		c.Fatal(err)
	}
	out := map[string]apiextensionsv1.CustomResourceDefinition{}
	for _, kind := range all.Items {
		if kind.Spec.Group == "infrastructure.cluster.x-k8s.io" {
			out[kind.Name] = kind
		}
	}
	return out
}

// helm runs Helm against the cluster.
func (c *cluster) helm(args ...string) error {
	c.Helper()
	out, err := helm(c.T, c.module, append(args, "--namespace="+c.namespace, "--kubeconfig="+c.kubeconfig)...)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func (c *cluster) must(args ...string) {
	c.Helper()
	if err := c.helm(args...); err != nil {
		c.Fatal(err)
	}
}

// pool applies a NstanceMachinePool as kubectl apply does, which refuses unknown fields.
func (c *cluster) pool(more map[string]any) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "NstanceMachinePool",
		"metadata": map[string]any{"name": "web", "namespace": c.namespace},
		"spec":     map[string]any{"group": "web", "shards": []any{"one"}},
	}}
	for field, value := range more {
		if err := unstructured.SetNestedField(o.Object, value, "spec", field); err != nil {
			return nil, err
		}
	}
	strict := client.WithFieldValidation(c.api, metav1.FieldValidationStrict)
	err := strict.Apply(c.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("another"), client.ForceOwnership)
	return o, err
}

// uid returns the pool's UID, which shows whether it is still the same object.
func (c *cluster) uid() string {
	c.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta1")
	o.SetKind("NstanceMachinePool")
	if err := c.api.Get(c.Context(), client.ObjectKey{Namespace: c.namespace, Name: "web"}, o); err != nil {
		c.Fatal(err)
	}
	return string(o.GetUID())
}

// TestInstallUpgradeRemove: a release's life. The earlier chart lacks a field of a kind; objects
// created while it was installed are kept throughout.
func TestInstallUpgradeRemove(t *testing.T) {
	for _, module := range majors() {
		t.Run(module, func(t *testing.T) {
			c := newCluster(t, module)
			c.must("install", release, before(t), "--set=log.level=debug")
			c.eventually("the kinds are served", func() error { _, err := c.pool(nil); return err })
			if _, err := c.pool(map[string]any{"instanceType": "large"}); err == nil || !strings.Contains(err.Error(), "instanceType") {
				t.Fatalf("the chart before this one has the field instanceType: %v", err)
			}
			made := c.uid()

			// As in docs/install.md: values that were set are kept, and new defaults apply.
			c.must("upgrade", release, chart, "--reset-then-reuse-values")
			c.upgraded()
			c.eventually("the new field is taken", func() error { _, err := c.pool(map[string]any{"instanceType": "large"}); return err })
			c.admitted()
			c.rights()

			c.must("uninstall", release)
			var deployments appsv1.DeploymentList
			if err := c.api.List(t.Context(), &deployments, client.InNamespace(c.namespace)); err != nil || len(deployments.Items) != 0 {
				t.Errorf("%d Deployments are left (%v)", len(deployments.Items), err)
			}
			if left := c.found(); len(left) != 6 || c.uid() != made {
				t.Errorf("%d kinds are left, and the pool is %s, was %s", len(left), c.uid(), made)
			}
			c.must("install", release, chart)
			if c.uid() != made {
				t.Error("the pool is another one after the release was installed again")
			}
			c.must("uninstall", release)
		})
	}
}

// TestTakeOwnership: Helm takes over what kubectl apply -k installed, with --take-ownership.
func TestTakeOwnership(t *testing.T) {
	for _, module := range majors() {
		t.Run(module, func(t *testing.T) {
			c := newCluster(t, module)
			c.kustomize()
			if err := c.helm("install", release, chart); err == nil || !strings.Contains(err.Error(), "ownership") {
				t.Fatalf("installed over what is there: %v", err)
			}
			args := []string{"install", release, chart, "--take-ownership"}
			if module == "helm" { // applies as kubectl apply --server-side does
				args = append(args, "--force-conflicts")
			}
			c.must(args...)
			var d appsv1.Deployment
			if err := c.api.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: release}, &d); err != nil {
				t.Fatal(err)
			}
			if d.Labels["app.kubernetes.io/managed-by"] != "Helm" {
				t.Errorf("the Deployment is not Helm's: %v", d.Labels)
			}
			c.must("uninstall", release)
		})
	}
}

func (c *cluster) eventually(what string, check func() error) {
	c.Helper()
	planetest.Eventually(c.T, patience, what, func(context.Context) error { return check() })
}

// kustomize applies config/default in the namespace of this test.
func (c *cluster) kustomize() {
	c.Helper()
	folder, err := filepath.EvalSymlinks(c.TempDir())
	if err != nil {
		c.Fatal(err)
	}
	base, err := filepath.Abs("../../config/default")
	if err != nil {
		c.Fatal(err)
	}
	if base, err = filepath.Rel(folder, base); err != nil {
		c.Fatal(err)
	}
	text := "namespace: " + c.namespace + "\nresources: [" + base + "]\n"
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		c.Fatal(err)
	}
	kubectl := filepath.Join(planetest.Folder(c.T), "kubectl")
	cmd := exec.CommandContext(c.Context(), kubectl, "apply", "-k", folder, "--kubeconfig", c.kubeconfig)
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+c.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		c.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

// upgraded: the Deployment has the new chart's image, and the values set for the old one.
func (c *cluster) upgraded() {
	c.Helper()
	var d appsv1.Deployment
	if err := c.api.Get(c.Context(), client.ObjectKey{Namespace: c.namespace, Name: release}, &d); err != nil {
		c.Fatal(err)
	}
	manager := d.Spec.Template.Spec.Containers[0]
	if manager.Image != "ghcr.io/nstance/nstance-operator:v0.1.0" || !slices.Contains(manager.Args, "--zap-log-level=debug") {
		c.Errorf("after the upgrade it is %s with %v", manager.Image, manager.Args)
	}
}

// admitted: the namespace admits the operator's pod and the test's.
func (c *cluster) admitted() {
	c.Helper()
	var d appsv1.Deployment
	if err := c.api.Get(c.Context(), client.ObjectKey{Namespace: c.namespace, Name: release}, &d); err != nil {
		c.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
	pod.Namespace, pod.Name = c.namespace, "operator"
	rendered, err := render(c.T, c.module, "--show-only=templates/tests/ready.yaml")
	if err != nil {
		c.Fatal(err)
	}
	var test corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(rendered), &test); err != nil {
		c.Fatal(err)
	}
	test.Namespace = c.namespace
	for _, p := range []*corev1.Pod{pod, &test} {
		if err := c.api.Create(c.Context(), p, client.DryRunAll); err != nil {
			c.Errorf("pod %s: %v", p.Name, err)
		}
	}
	// The Service selects the operator, and not this test's pod.
	var service corev1.Service
	if err := c.api.Get(c.Context(), client.ObjectKey{Namespace: c.namespace, Name: release}, &service); err != nil {
		c.Fatal(err)
	}
	if !selects(service.Spec.Selector, pod.Labels) || selects(service.Spec.Selector, test.Labels) {
		c.Errorf("the Service selects %v: the operator is %v, the test %v", service.Spec.Selector, pod.Labels, test.Labels)
	}
}

func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// rights: the ServiceAccounts have the permissions that they need, and none for other objects.
func (c *cluster) rights() {
	c.Helper()
	for _, r := range []struct {
		who, ns, verb, resource, sub, name string
		may                                bool
	}{
		{"nstance-operator", "", "list", "nodes", "", "", true},
		{"nstance-operator", c.namespace, "create", "secrets", "", "", true},
		{"nstance-operator", c.namespace, "get", "secrets", "", "nstance-operator-key", true},
		{"nstance-operator", c.namespace, "get", "secrets", "", "another", false},
		{"nstance-operator", c.namespace, "create", "serviceaccounts", "token", "nstance-capi-workload", true},
		{"nstance-operator", c.namespace, "create", "serviceaccounts", "token", "another", false},
		{"nstance-operator", "kube-system", "get", "secrets", "", "", false},
		{"nstance-operator", "", "delete", "nodes", "", "", false},
		{"nstance-capi-workload", "", "delete", "nodes", "", "", true},
		{"nstance-capi-workload", c.namespace, "get", "secrets", "", "", false},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + c.namespace + ":" + r.who,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: r.ns, Verb: r.verb, Resource: r.resource, Subresource: r.sub, Name: r.name,
			},
		}}
		if err := c.api.Create(c.Context(), review); err != nil {
			c.Fatal(err)
		}
		if review.Status.Allowed != r.may {
			c.Errorf("%+v: allowed: %v: %s", r, review.Status.Allowed, review.Status.Reason)
		}
	}
}

// before returns an earlier chart, in which a kind lacks a field.
func before(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "nstance-operator")
	if err := os.CopyFS(folder, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(folder, "Chart.yaml"), func(text []byte) ([]byte, error) {
		if !bytes.Contains(text, []byte("\nversion: 0.1.0\n")) {
			return nil, errors.New("the chart has another version than 0.1.0: give its predecessor here one that is lower")
		}
		return bytes.Replace(text, []byte("\nversion: 0.1.0\n"), []byte("\nversion: 0.0.1\n"), 1), nil
	})
	edit(t, filepath.Join(folder, "values.yaml"), func(text []byte) ([]byte, error) {
		return bytes.Replace(text, []byte(`digest: ""`), []byte("digest: sha256:"+strings.Repeat("0", 64)), 1), nil
	})
	edit(t, filepath.Join(folder, "files", "crds.yaml"), func(text []byte) ([]byte, error) {
		documents := strings.Split(string(text), "\n---\n")
		for i, document := range documents {
			var kind unstructured.Unstructured
			if err := yaml.Unmarshal([]byte(document), &kind.Object); err != nil {
				return nil, err
			}
			if kind.GetName() != "nstancemachinepools.infrastructure.cluster.x-k8s.io" {
				continue
			}
			versions, _, err := unstructured.NestedSlice(kind.Object, "spec", "versions")
			if err != nil {
				return nil, err
			}
			version := versions[0].(map[string]any)
			unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", "instanceType")
			if err := unstructured.SetNestedSlice(kind.Object, versions, "spec", "versions"); err != nil {
				return nil, err
			}
			changed, err := yaml.Marshal(kind.Object)
			if err != nil {
				return nil, err
			}
			documents[i] = string(changed)
			return []byte(strings.Join(documents, "\n---\n")), nil
		}
		return nil, errors.New("there is no NstanceMachinePool")
	})
	return folder
}

func edit(t *testing.T, file string, change func([]byte) ([]byte, error)) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		text, err = change(text)
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
