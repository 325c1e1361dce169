// Package config_test holds the manifests against the operator that they install, and
// against a real API server.
package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/nstance/nstance/pkg/leaktest"
)

// namespace is where everything is, unless a kustomization above says otherwise.
const namespace = "nstance"

// second is the namespace of another tenant's operator.
const second = "nstance-blue"

func TestMain(m *testing.M) { leaktest.Main(m.Run) }

// build is what kubectl apply -k of a folder applies.
func build(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, text)
}

// another is all of the operator once more, in another namespace and with another image,
// by the kustomization that the operator's page has for it.
func another(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("default")
	if err != nil {
		t.Fatal(err)
	}
	base, err := filepath.Rel(folder, here) // kustomize takes no absolute one
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range blocks(t, "yaml") {
		if !strings.Contains(block, "kind: Kustomization") {
			continue
		}
		text := strings.Replace(block, "../nstance/config/default", base, 1)
		if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return build(t, folder)
}

// parse reads a file of several objects.
func parse(t *testing.T, text []byte) (all []*unstructured.Unstructured) {
	t.Helper()
	for document := range strings.SplitSeq("\n"+string(text), "\n---") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatalf("%v in:\n%.500s", err, document)
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
	return all
}

// only are the objects of a kind.
func only[T any](t *testing.T, all []*unstructured.Unstructured, kind string) (found []T) {
	t.Helper()
	for _, o := range all {
		if o.GetKind() != kind {
			continue
		}
		var one T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &one, true); err != nil {
			t.Fatalf("%s %s: %v", kind, o.GetName(), err)
		}
		found = append(found, one)
	}
	return found
}

// one is the only object of a kind, or the one that has the name.
func one[T any](t *testing.T, all []*unstructured.Unstructured, kind, name string) T {
	t.Helper()
	var named []*unstructured.Unstructured
	for _, o := range all {
		if o.GetKind() == kind && o.GetName() == name {
			named = append(named, o)
		}
	}
	found := only[T](t, named, kind)
	if len(found) != 1 {
		t.Fatalf("%d objects %s %s, want one", len(found), kind, name)
	}
	return found[0]
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
