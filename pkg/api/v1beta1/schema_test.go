package v1beta1_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

// object reads the text of an object of one of the project's kinds, in the
// namespace default.
func object(t *testing.T, kind, name, rest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(rest), &o.Object); err != nil {
		t.Fatal(err)
	}
	if o.Object == nil {
		o.Object = map[string]any{}
	}
	o.SetGroupVersionKind(v1beta1.GroupVersion().WithKind(kind))
	o.SetName(name)
	o.SetNamespace(metav1.NamespaceDefault)
	return o
}

// TestFieldsAreDescribed: kubectl explain says of each field what it is, and each status says
// which generation of the spec it describes.
func TestFieldsAreDescribed(t *testing.T) {
	files, err := filepath.Glob("../../../config/crd/bases/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		for _, version := range crd.Spec.Versions {
			schema := version.Schema.OpenAPIV3Schema
			if _, ok := schema.Properties["status"].Properties["observedGeneration"]; !ok {
				t.Errorf("%s: the status has no observedGeneration", crd.Spec.Names.Kind)
			}
			for _, path := range undescribed(*schema, crd.Spec.Names.Kind) {
				t.Errorf("%s has no description", path)
			}
		}
	}
}

// undescribed are the paths of the fields without a description.
func undescribed(schema apiextensionsv1.JSONSchemaProps, path string) (all []string) {
	for name, field := range schema.Properties {
		at := path + "." + name
		if field.Description == "" && name != "metadata" {
			all = append(all, at)
		}
		all = append(all, undescribed(field, at)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		all = append(all, undescribed(*schema.Items.Schema, path+"[]")...)
	}
	return all
}

func TestWhatIsWrongIsRefusedByTheSchema(t *testing.T) {
	api := shared.Plane(t).Client
	for _, c := range []struct{ name, kind, spec, want string }{
		{"a pool", "NstanceMachinePool", `spec: {group: web, shards: [a, b], vars: {n: 1, o: {p: [x]}}, rotation: {maxSurge: 5%}}`, ""},
		{"a count of surge", "NstanceMachinePool", `spec: {group: web, shards: [a], rotation: {maxSurge: 3}}`, ""},
		{"no group", "NstanceMachinePool", `spec: {shards: [a]}`, "spec.group"},
		{"no shard", "NstanceMachinePool", `spec: {group: web, shards: []}`, "spec.shards"},
		{"a shard twice", "NstanceMachinePool", `spec: {group: web, shards: [a, a]}`, "spec.shards[1]"},
		{"a group that is no id", "NstanceMachinePool", `spec: {group: Web, shards: [a]}`, "spec.group"},
		{"a group that is too long", "NstanceMachinePool", `spec: {group: abcdefghijklmnopqrstuvwxyzabcdefg, shards: [a]}`, "spec.group"},
		{"surge that is none", "NstanceMachinePool", `spec: {group: web, shards: [a], rotation: {maxSurge: 101%}}`, "spec.rotation.maxSurge"},
		{
			"a taint without effect", "NstanceMachinePool",
			`spec: {group: web, shards: [a], nodeTaints: [{key: x, propagation: Always}]}`, "spec.nodeTaints[0].effect",
		},

		{
			"what pods may have", "NstanceMachinePool",
			`spec: {group: web, shards: [a], onDemand: {namespaces: [ci], namespaceLabels: {a: b}, instanceTypes: [x], max: 3, maxPerNamespace: 2}}`,
			"",
		},
		{"all of them", "NstanceMachinePool", `spec: {group: web, shards: [a], onDemand: {namespaces: ["*"], max: 1}}`, ""},
		{"pods without a bound", "NstanceMachinePool", `spec: {group: web, shards: [a], onDemand: {namespaces: [ci]}}`, "spec.onDemand.max"},
		{"pods of nowhere", "NstanceMachinePool", `spec: {group: web, shards: [a], onDemand: {max: 1}}`, "namespaces: required"},
		{
			"pods of no Namespace", "NstanceMachinePool", `spec: {group: web, shards: [a], onDemand: {namespaces: [C I], max: 1}}`,
			"spec.onDemand.namespaces[0]",
		},
		{
			"more for one than for all", "NstanceMachinePool",
			`spec: {group: web, shards: [a], onDemand: {namespaces: [ci], max: 1, maxPerNamespace: 2}}`,
			"maxPerNamespace: want at most max",
		},

		{"a group on a shard", "NstanceShardGroup", `spec: {group: web, shard: a, size: 0}`, ""},
		{"another name", "NstanceShardGroup", `spec: {group: web, shard: b, size: 0}`, "metadata.name"},
		{"no size", "NstanceShardGroup", `spec: {group: web, shard: a}`, "spec.size"},
		{"a negative size", "NstanceShardGroup", `spec: {group: web, shard: a, size: -1}`, "spec.size"},
		{"an id that is none", "NstanceShardGroup", `spec: {group: web, shard: a, size: 0, remove: [knd1]}`, "spec.remove[0]"},

		{"a machine", "NstanceMachine", `spec: {group: web}`, ""},
		{"a machine without group", "NstanceMachine", `spec: {shard: a}`, "spec.group"},
		{"an id with a letter too many", "NstanceMachine", `spec: {group: web, instanceID: knd01m7y23z9me5h9rh8r505a17vzz}`, "spec.instanceID"},

		{"a template", "NstanceMachineTemplate", `spec: {template: {spec: {group: web, instanceType: small}}}`, ""},
		{
			"a template with an id", "NstanceMachineTemplate",
			`spec: {template: {spec: {group: web, idempotencyKey: k}}}`, "can't be set in a template",
		},
		{"a control plane", "NstanceControlPlane", ``, ""},
		{"a cluster", "NstanceCluster", `spec: {controlPlaneEndpoint: {host: api, port: 6443}}`, ""},
		{"a port that is none", "NstanceCluster", `spec: {controlPlaneEndpoint: {host: api, port: 65536}}`, "spec.controlPlaneEndpoint.port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := api.Create(t.Context(), object(t, c.kind, "web--a", c.spec), client.DryRunAll)
			switch {
			case c.want == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case c.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.want)):
				t.Fatalf("%v: want it refused for %s", err, c.want)
			}
		})
	}
}

func TestWhatIsSetOnceStays(t *testing.T) {
	api := shared.Plane(t).Client
	const id = "knd01m7y23z9me5h9rh8r505a17vz"
	m := object(t, "NstanceMachine", "once", `spec: {group: web}`)
	if err := api.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Delete(t.Context(), m) })
	for field, values := range map[string][2]string{
		"shard": {"a", "b"}, "idempotencyKey": {"k1", "k2"}, "instanceID": {id, id[:28] + "0"}, "providerID": {"docker:///a", "docker:///b"},
	} {
		_ = unstructured.SetNestedField(m.Object, values[0], "spec", field)
		if err := api.Update(t.Context(), m); err != nil {
			t.Fatalf("set %s: %v", field, err)
		}
		for what, change := range map[string]func(o map[string]any){
			"another": func(o map[string]any) { o[field] = values[1] },
			"none":    func(o map[string]any) { delete(o, field) },
		} {
			changed := m.DeepCopy()
			change(changed.Object["spec"].(map[string]any))
			if err := api.Update(t.Context(), changed); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), field+": immutable once set") {
				t.Errorf("%s %s: %v, want it refused", what, field, err)
			}
		}
	}
	retry := map[string]any{"failures": int64(1), "reason": "Refused", "retryTime": "2026-01-01T00:00:00Z"}
	_ = unstructured.SetNestedMap(m.Object, retry, "status", "creation")
	if err := api.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	_ = unstructured.SetNestedField(m.Object, "b", "spec", "shard")
	_ = unstructured.SetNestedField(m.Object, "k2", "spec", "idempotencyKey")
	unstructured.RemoveNestedField(m.Object, "spec", "instanceID")
	unstructured.RemoveNestedField(m.Object, "spec", "providerID")
	if err := api.Update(t.Context(), m); err != nil {
		t.Errorf("after a failed creation: %v", err)
	}
}

// The template of a group in a shard's static config can't be changed, but its size can.
func TestAStaticGroupsTemplateStays(t *testing.T) {
	api := shared.Plane(t).Client
	pool := object(t, "NstanceMachinePool", "static", `spec: {group: static, shards: [a], template: knd}`)
	if err := api.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Delete(t.Context(), pool) })
	is := func(static bool) {
		t.Helper()
		_ = unstructured.SetNestedField(pool.Object, static, "status", "isStatic")
		if err := api.Status().Update(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	change := func(field, value string) error {
		changed := pool.DeepCopy()
		_ = unstructured.SetNestedField(changed.Object, value, "spec", field)
		return api.Update(t.Context(), changed, client.DryRunAll)
	}
	is(true)
	for _, field := range []string{"template", "subnetPool"} {
		if err := change(field, "other"); !apierrors.IsInvalid(err) ||
			!strings.Contains(err.Error(), "the group is in the shard's static config") {
			t.Errorf("change %s of a static group: %v", field, err)
		}
	}
	if err := change("instanceType", "large"); err != nil {
		t.Errorf("change the type of a static group: %v", err)
	}
	is(false)
	if err := change("template", "other"); err != nil {
		t.Errorf("change the template when the group is static no more: %v", err)
	}
}

// Cluster API finds a provider's kinds, and the version of its contract, by labels.
func TestKindsSayWhichContractTheyFulfil(t *testing.T) {
	api := shared.Plane(t).Client
	crds := &unstructured.UnstructuredList{}
	crds.SetAPIVersion("apiextensions.k8s.io/v1")
	crds.SetKind("CustomResourceDefinitionList")
	if err := api.List(t.Context(), crds); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, crd := range crds.Items {
		if group, _, _ := unstructured.NestedString(crd.Object, "spec", "group"); group == v1beta1.Group {
			found++
			if crd.GetLabels()["cluster.x-k8s.io/v1beta2"] != "v1beta1" {
				t.Errorf("%s has the labels %v", crd.GetName(), crd.GetLabels())
			}
		}
	}
	if found != 6 {
		t.Errorf("%d kinds, want 6", found)
	}
}
