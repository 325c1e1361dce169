package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Decode decodes a config map strictly into the struct that into points to, by json tags:
// unknown names and values of the wrong type are errors. field is the map's path.
func Decode(field string, values map[string]any, into any) (wrong FieldErrors) {
	known := fieldNames(reflect.TypeOf(into).Elem())
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(known, name) {
			wrong.Addf(fmt.Sprintf("%s.%.80s", field, name), "no such field (have: %s)", strings.Join(known, ", "))
		}
	}
	if len(wrong) > 0 {
		return wrong
	}
	data, err := json.Marshal(values)
	if err != nil {
		wrong.Addf(field, "%v", err)
		return wrong
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err = d.Decode(into)
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mismatch):
		verb := "got"
		if inner(reflect.TypeOf(into).Elem(), mismatch) {
			verb = "holds"
		}
		wrong.Addf(field+"."+mismatch.Field, "%s %s: want %s", verb, article(mismatch.Value), jsonType(mismatch.Type))
	case err != nil:
		wrong.Addf(field, "%v", err)
	}
	return wrong
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// inner reports whether the error is about a value within the field rather than the field.
func inner(t reflect.Type, wrong *json.UnmarshalTypeError) bool {
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name == wrong.Field {
			return t.Field(i).Type.Kind() == reflect.Map && wrong.Type.Kind() != reflect.Map
		}
	}
	return false
}

// jsonType returns the config's name for a Go type.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Pointer:
		return jsonType(t.Elem())
	default:
		return "a number"
	}
}

// article prefixes the kind of a JSON value, which may be followed by the value, with "a" or
// "an".
func article(kind string) string {
	if strings.HasPrefix(kind, "array") || strings.HasPrefix(kind, "object") {
		return "an " + kind
	}
	return "a " + kind
}
