package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

const shipped = "../nstance-operator"

func text(t *testing.T, name string) []byte {
	t.Helper()
	out, err := os.ReadFile(filepath.Join(shipped, name))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// schema is as much of a JSON schema as the values need.
type schema struct {
	Type                 any
	Properties           map[string]schema
	AdditionalProperties any
	Required             []string
}

// TestSchema: values.schema.json has the values of values.yaml and no others, and those of
// the first level can't be set to null.
func TestSchema(t *testing.T) {
	var root schema
	var values map[string]any
	if err := json.Unmarshal(text(t, "values.schema.json"), &root); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text(t, "values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	for _, parents := range []string{"global", "enabled"} {
		delete(root.Properties, parents) // a parent chart's
	}
	for name := range values {
		if !slices.Contains(root.Required, name) {
			t.Errorf("%s is not among the required ones of the schema", name)
		}
	}
	same(t, "", root, values)
}

// same compares the names of a group of values, and of those within.
func same(t *testing.T, path string, s schema, values map[string]any) {
	t.Helper()
	if s.AdditionalProperties != false {
		t.Errorf("%s: the schema takes what is not in values.yaml", path)
	}
	for name, v := range values {
		property, ok := s.Properties[name]
		if !ok {
			t.Errorf("%s%s is not in the schema", path, name)
			continue
		}
		inner, isMap := v.(map[string]any)
		if isMap && property.Type != "object" {
			t.Errorf("%s%s is an object, and of the type %v in the schema", path, name, property.Type)
		}
		if isMap && len(property.Properties) > 0 && !slices.Contains([]string{"resources", "podLabels", "strategy"}, name) {
			same(t, path+name+".", property, inner)
		}
	}
	for name := range s.Properties {
		if _, ok := values[name]; !ok {
			t.Errorf("%s%s is in the schema and not in values.yaml", path, name)
		}
	}
}

// TestNames: the chart's own names are in camel case; those of config are the operator's.
func TestNames(t *testing.T) {
	values, err := read(text(t, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	camel := regexp.MustCompile(`^[a-z][A-Za-z]*(\.[a-z][A-Za-z]*)*$`)
	for _, v := range values {
		if !strings.HasPrefix(v.name, "config.") && !camel.MatchString(v.name) {
			t.Errorf("%s: want camel case", v.name)
		}
	}
}

// TestReadme: the table is that of the values.
func TestReadme(t *testing.T) {
	values, err := read(text(t, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text(t, "README.md")), "\n"+table(values)+"\n") {
		t.Error("README.md has another table: run make chart-table")
	}
}

// TestMetadata: Chart.yaml agrees with the repository's files.
func TestMetadata(t *testing.T) {
	var meta struct {
		Icon        string
		Annotations map[string]string
	}
	if err := yaml.Unmarshal(text(t, "Chart.yaml"), &meta); err != nil {
		t.Fatal(err)
	}
	links := meta.Annotations["artifacthub.io/links"] + "\n" + meta.Icon + "\n" + string(text(t, "README.md"))
	const ours = `https://(?:github\.com/nstance/nstance/blob/main|raw\.githubusercontent\.com/nstance/nstance/main)/([\w./-]+)`
	found := regexp.MustCompile(ours).FindAllStringSubmatch(links, -1)
	if len(found) < 5 || !strings.HasSuffix(meta.Icon, "/icon.svg") {
		t.Fatalf("found the links %v and the icon %q", found, meta.Icon)
	}
	for _, m := range found {
		if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(m[1]))); err != nil {
			t.Errorf("%s leads nowhere", m[0])
		}
	}
	var kinds []struct{ Kind, Version, Name string }
	if err := yaml.Unmarshal([]byte(meta.Annotations["artifacthub.io/crds"]), &kinds); err != nil {
		t.Fatal(err)
	}
	crds := string(text(t, "files/crds.yaml"))
	if n := strings.Count(crds, "\nkind: CustomResourceDefinition\n"); n != len(kinds) {
		t.Errorf("artifacthub.io/crds has %d kinds, and the chart installs %d", len(kinds), n)
	}
	for _, k := range kinds {
		for _, line := range []string{"\n  name: " + k.Name + "\n", "\n    kind: " + k.Kind + "\n", "\n    name: " + k.Version + "\n"} {
			if !strings.Contains(crds, line) {
				t.Errorf("%s: the chart installs no kind with %q", k.Kind, strings.TrimSpace(line))
			}
		}
	}
}
