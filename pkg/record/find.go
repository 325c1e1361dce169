package record

import (
	"bytes"
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Find returns the fields of a JSON object that T does not have. As in encoding/json, names are
// compared without regard to case.
func Find[T any](body []byte) (Unknown, error) {
	return find(body, reflect.TypeFor[T]())
}

func find(body []byte, t reflect.Type) (Unknown, error) {
	if body = bytes.TrimSpace(body); len(body) == 0 || body[0] != '{' || !isObject(t) {
		return Unknown{}, nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(body, &given); err != nil {
		return Unknown{}, err
	}
	var u Unknown
	for _, name := range slices.Sorted(maps.Keys(given)) {
		field, known := fieldOf(t, name)
		if !known {
			if err := u.keep(name, given[name]); err != nil {
				return Unknown{}, err
			}
			continue
		}
		in, err := find(given[name], pointedTo(field.Type))
		if err != nil {
			return Unknown{}, err
		}
		u.keepInside(nameOf(field), in)
	}
	return u, nil
}

func (u *Unknown) keep(name string, value json.RawMessage) error {
	var compact bytes.Buffer
	if err := json.Compact(&compact, value); err != nil {
		return err
	}
	if u.fields == nil {
		u.fields = map[string]json.RawMessage{}
	}
	u.fields[name] = compact.Bytes()
	return nil
}

func (u *Unknown) keepInside(name string, in Unknown) {
	if in.IsZero() {
		return
	}
	if u.inside == nil {
		u.inside = map[string]Unknown{}
	}
	u.inside[name] = in
}

// isObject reports whether a type is decoded field by field.
func isObject(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	p := reflect.PointerTo(t)
	return !p.Implements(reflect.TypeFor[json.Unmarshaler]()) && !p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func pointedTo(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Tag.Get("json") == "" && f.Type.Kind() == reflect.Struct {
			if in, ok := fieldOf(f.Type, name); ok {
				return in, true
			}
			continue
		}
		if f.IsExported() && f.Tag.Get("json") != "-" && strings.EqualFold(nameOf(f), name) {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func nameOf(f reflect.StructField) string {
	if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
		return name
	}
	return f.Name
}
