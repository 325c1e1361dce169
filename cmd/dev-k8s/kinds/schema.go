package kinds

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// schemas caches the schemas of CustomResourceDefinitions until they change.
type schemas struct {
	definition func(name string) ([]byte, int64)

	mu   sync.Mutex
	kept map[string]*definition
}

type definition struct {
	at      int64
	kind    string
	wide    bool                    // cluster-scoped
	schemas map[string]*spec.Schema // by version
}

// stored is a CustomResourceDefinition as kube-apiserver stores it, as v1 or as v1beta1, which
// may have one schema for all versions.
type stored struct {
	Spec struct {
		Scope      string
		Names      struct{ Kind string }
		Version    string
		Validation form
		Versions   []struct {
			Name   string
			Schema form
		}
	}
}

type form struct{ OpenAPIV3Schema any }

// checkKind validates the kind and reports whether it is cluster-scoped.
func (k *Kinds) checkKind(id ID, gvk schema.GroupVersionKind, object map[string]any) (wide bool, err error) {
	group, known := k.builtin.group(id.Resource)
	if !known || group != id.Group {
		return k.schemas.check(id, gvk, object)
	}
	wide = slices.Contains(k.builtin.wide, id.Resource)
	kinds := k.builtin.kinds[id.Resource]
	if kinds == nil { // a few have no types in the libraries
		return wide, nil
	}
	if !slices.Contains(kinds, gvk) {
		return wide, fmt.Errorf("%s, %s is not a kind of %s", gvk.GroupVersion(), gvk.Kind, id.Resource)
	}
	text, err := json.Marshal(object)
	if err != nil {
		return wide, err
	}
	if _, _, err = k.decoder.Decode(text, nil, nil); err != nil {
		err = fmt.Errorf("not a valid %s: %w", gvk.Kind, err)
	}
	return wide, err
}

func (s *schemas) check(id ID, gvk schema.GroupVersionKind, object map[string]any) (bool, error) {
	name := id.Resource + "." + id.Group
	d, err := s.get(name)
	if err != nil {
		return false, err
	}
	if gvk.Kind != d.kind {
		return d.wide, fmt.Errorf("kind is %q, but %s have the kind %q", gvk.Kind, name, d.kind)
	}
	form, ok := d.schemas[gvk.Version]
	if !ok {
		return d.wide, fmt.Errorf("%s has no version %q", name, gvk.Version)
	}
	if form == nil {
		return d.wide, nil
	}
	return d.wide, validate.NewSchemaValidator(form, nil, "", strfmt.Default).Validate(object).AsError()
}

func (s *schemas) get(name string) (*definition, error) {
	text, at := s.definition(name)
	if text == nil {
		return nil, fmt.Errorf("there is no CustomResourceDefinition %s", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.kept[name]; d != nil && d.at == at {
		return d, nil
	}
	d, err := read(text)
	if err != nil {
		return nil, fmt.Errorf("read the definition of %s: %w", name, err)
	}
	d.at = at
	if s.kept == nil {
		s.kept = map[string]*definition{}
	}
	s.kept[name] = d
	return d, nil
}

func read(text []byte) (*definition, error) {
	var crd stored
	if err := json.Unmarshal(text, &crd); err != nil {
		return nil, err
	}
	d := &definition{kind: crd.Spec.Names.Kind, wide: crd.Spec.Scope == "Cluster", schemas: map[string]*spec.Schema{}}
	shared, err := compile(crd.Spec.Validation)
	if err != nil {
		return nil, err
	}
	if crd.Spec.Version != "" {
		d.schemas[crd.Spec.Version] = shared
	}
	for _, v := range crd.Spec.Versions {
		own, err := compile(v.Schema)
		if err != nil {
			return nil, err
		}
		if own == nil {
			own = shared
		}
		d.schemas[v.Name] = own
	}
	return d, nil
}

func compile(of form) (*spec.Schema, error) {
	if of.OpenAPIV3Schema == nil {
		return nil, nil
	}
	text, err := json.Marshal(either(of.OpenAPIV3Schema))
	if err != nil {
		return nil, err
	}
	form := &spec.Schema{}
	return form, json.Unmarshal(text, form)
}

// either allows both numbers and strings for a field with x-kubernetes-int-or-string, which
// the validator does not know.
func either(of any) any {
	switch of := of.(type) {
	case map[string]any:
		if both, _ := of["x-kubernetes-int-or-string"].(bool); both {
			of["type"] = []any{"integer", "string"}
			delete(of, "format")
			delete(of, "anyOf")
		}
		for key, value := range of {
			of[key] = either(value)
		}
	case []any:
		for i, value := range of {
			of[i] = either(value)
		}
	}
	return of
}
