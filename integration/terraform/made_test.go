//go:build integration

package terraform_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// resource is a resource or a data source in a plan.
type resource struct {
	Address string         `json:"address"`
	Mode    string         `json:"mode"`
	Type    string         `json:"type"`
	Name    string         `json:"name"`
	Values  map[string]any `json:"values"`
}

// module is a module in a plan.
type module struct {
	Address   string     `json:"address"`
	Resources []resource `json:"resources"`
	Children  []module   `json:"child_modules"`
}

// values are all values of a plan or a state.
type values struct {
	Outputs map[string]struct {
		Value any `json:"value"`
	} `json:"outputs"`
	Root module `json:"root_module"`
}

// plan is the output of `terraform show -json` for a plan or a state.
type plan struct {
	Planned values `json:"planned_values"`
	State   values `json:"values"`
	Prior   struct {
		State values `json:"values"`
	} `json:"prior_state"` // has the data sources of a plan
	Changes []struct {
		Address string `json:"address"`
		Change  struct {
			Actions []string `json:"actions"`
		} `json:"change"`
	} `json:"resource_changes"`
}

// made is an applied configuration, with all files that Terraform wrote.
type made struct {
	values
	changes   plan
	resources []resource
	written   string // state and plan, as text
}

// root writes a configuration that calls modules, and returns its folder.
func root(t *testing.T, modules string, of fixture) string {
	t.Helper()
	folder := filepath.Join(modules, "fixture")
	outputs := map[string]any{}
	calls := map[string]any{}
	for name, inputs := range of.modules {
		call := map[string]any{"source": "../aws/" + name}
		for input, value := range inputs {
			call[input] = value
		}
		calls[name] = call
		outputs[name] = map[string]any{"value": "${module." + name + "}", "sensitive": true}
	}
	text, err := json.MarshalIndent(map[string]any{
		"terraform": map[string]any{"required_providers": map[string]any{"aws": map[string]any{"source": "hashicorp/aws"}}},
		"provider":  map[string]any{"aws": map[string]any{"region": cmp.Or(of.region, region)}},
		"module":    calls, "output": outputs,
	}, "", "  ")
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "main.tf.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// apply applies a fixture with a copy of the modules. The error is that of the modules or the
// provider.
func (p program) apply(t *testing.T, modules string, of fixture) (made, error) {
	t.Helper()
	folder := root(t, modules, of)
	p.must(t, folder, "get")
	if _, err := p.run(t, folder, "apply", "-auto-approve", "-no-color"); err != nil {
		return made{}, err
	}
	out := p.shown(t, folder)
	out.values = out.changes.State
	out.gather(out.Root)
	return out, nil
}

// plan applies it, and then plans again, so that all values are known.
func (p program) plan(t *testing.T, modules string, of fixture) (made, error) {
	t.Helper()
	if _, err := p.apply(t, modules, of); err != nil {
		return made{}, err
	}
	folder := filepath.Join(modules, "fixture")
	p.must(t, folder, "plan", "-no-color", "-out=plan")
	out := p.shown(t, folder, "plan")
	out.values = out.changes.Planned
	out.gather(out.Root)
	out.read(out.changes.Prior.State.Root)
	return out, nil
}

// shown reads a plan, or the state.
func (p program) shown(t *testing.T, folder string, plan ...string) made {
	t.Helper()
	text := p.must(t, folder, append([]string{"show", "-json"}, plan...)...)
	var out made
	if err := json.Unmarshal([]byte(text), &out.changes); err != nil {
		t.Fatal(err)
	}
	state, err := os.ReadFile(filepath.Join(folder, "terraform.tfstate"))
	if err != nil {
		t.Fatal(err)
	}
	out.written = text + string(state)
	return out
}

func (m *made) gather(from module) {
	m.resources = append(m.resources, from.Resources...)
	for _, child := range from.Children {
		m.gather(child)
	}
}

// read returns data sources only.
func (m *made) read(from module) {
	for _, r := range from.Resources {
		if r.Mode == "data" {
			m.resources = append(m.resources, r)
		}
	}
	for _, child := range from.Children {
		m.read(child)
	}
}

// all returns the resources of a type.
func (m made) all(kind string) []resource {
	var out []resource
	for _, r := range m.resources {
		if r.Mode == "managed" && r.Type == kind {
			out = append(out, r)
		}
	}
	return out
}

// one returns the only resource of a type.
func (m made) one(kind string) (resource, error) {
	all := m.all(kind)
	if len(all) != 1 {
		return resource{}, fmt.Errorf("there are %d of %s, want one", len(all), kind)
	}
	return all[0], nil
}

// get returns a value by its path, such as metadata_options.0.http_tokens; nil if it is missing.
func (r resource) get(path string) any {
	var at any = r.Values
	for step := range strings.SplitSeq(path, ".") {
		switch in := at.(type) {
		case map[string]any:
			at = in[step]
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n >= len(in) {
				return nil
			}
			at = in[n]
		default:
			return nil
		}
	}
	return at
}

// text returns a value as a string.
func (r resource) text(path string) string {
	value := r.get(path)
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// list returns a list's values as strings.
func (r resource) list(path string) []string {
	values, _ := r.get(path).([]any)
	var out []string
	for _, value := range values {
		out = append(out, fmt.Sprint(value))
	}
	return out
}

// want compares values by their paths, as strings.
func (r resource) want(values map[string]string) error {
	for path, want := range values {
		if got := r.text(path); got != want {
			return fmt.Errorf("%s.%s is %q, want %q", r.Address, path, got, want)
		}
	}
	return nil
}
