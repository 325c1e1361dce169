package cli_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// document is the part of an OpenAPI document that the tests read.
type document struct {
	OpenAPI    string                                  `json:"openapi"`
	Paths      map[string]map[string]documentOperation `json:"paths"`
	Components struct {
		Schemas map[string]*schema `json:"schemas"`
	} `json:"components"`
}

type documentOperation struct {
	ID          string                      `json:"operationId"`
	Parameters  []documentParameter         `json:"parameters"`
	RequestBody *documentBody               `json:"requestBody"`
	Responses   map[string]documentResponse `json:"responses"`
	Security    *[]map[string][]string      `json:"security"`
}

type documentParameter struct {
	Name     string  `json:"name"`
	In       string  `json:"in"`
	Required bool    `json:"required"`
	Schema   *schema `json:"schema"`
}

type documentBody struct {
	Content map[string]documentMedia `json:"content"`
}

type documentResponse struct {
	Description string                   `json:"description"`
	Content     map[string]documentMedia `json:"content"`
}

type documentMedia struct {
	Schema *schema `json:"schema"`
}

// schema is a JSON schema, as far as the document uses it.
type schema struct {
	Ref                  string             `json:"$ref"`
	Type                 any                `json:"type"` // a name, or several
	Format               string             `json:"format"`
	Pattern              string             `json:"pattern"`
	Enum                 []any              `json:"enum"`
	Properties           map[string]*schema `json:"properties"`
	Required             []string           `json:"required"`
	Items                *schema            `json:"items"`
	AdditionalProperties json.RawMessage    `json:"additionalProperties"`
}

func (s *served) document(t *testing.T) document {
	t.Helper()
	return decode[document](t, string(s.do(t, httpRequest{method: "GET", path: "/openapi.json"}).body))
}

func (d document) resolve(s *schema) *schema {
	if s.Ref == "" {
		return s
	}
	return d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
}

// types returns the names of a schema's types.
func (s *schema) types() []string {
	switch t := s.Type.(type) {
	case string:
		return []string{t}
	case []any:
		var all []string
		for _, one := range t {
			all = append(all, fmt.Sprint(one))
		}
		return all
	default:
		return nil
	}
}

// check returns what is wrong with a value: it has what the schema requires, and nothing that
// the schema does not have.
func (d document) check(at string, of *schema, value any) []string {
	s := d.resolve(of)
	if s == nil {
		return []string{at + ": there is no schema " + of.Ref}
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, value) {
		return []string{fmt.Sprintf("%s: %v is not in the enum %v", at, value, s.Enum)}
	}
	got := map[bool]string{true: "null"}[value == nil]
	var wrong []string
	switch v := value.(type) {
	case map[string]any:
		got, wrong = "object", d.checkObject(at, s, v)
	case []any:
		got = "array"
		for n, item := range v {
			wrong = append(wrong, d.check(fmt.Sprintf("%s[%d]", at, n), s.Items, item)...)
		}
	case string:
		got, wrong = "string", checkString(at, s, v)
	case bool:
		got = "boolean"
	case float64:
		if got = "number"; v == float64(int64(v)) {
			got = "integer"
		}
	}
	if !slices.Contains(s.types(), got) && s.Type != nil {
		return []string{fmt.Sprintf("%s: it is of type %s, want %v", at, got, s.Type)}
	}
	return wrong
}

func (d document) checkObject(at string, s *schema, v map[string]any) (wrong []string) {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			wrong = append(wrong, at+"."+name+" is required and missing")
		}
	}
	var values *schema
	free := string(s.AdditionalProperties) == "true"
	if text := string(s.AdditionalProperties); text != "" && !free && text != "false" {
		values = &schema{}
		if err := json.Unmarshal(s.AdditionalProperties, values); err != nil {
			return []string{at + ": " + err.Error()}
		}
	}
	for name, item := range v {
		switch property := s.Properties[name]; {
		case property != nil:
			wrong = append(wrong, d.check(at+"."+name, property, item)...)
		case values != nil:
			wrong = append(wrong, d.check(at+"."+name, values, item)...)
		case !free:
			wrong = append(wrong, at+"."+name+" is not in the document")
		}
	}
	return wrong
}

func checkString(at string, s *schema, v string) []string {
	if s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v) {
		return []string{fmt.Sprintf("%s: %q does not match %s", at, v, s.Pattern)}
	}
	if _, err := time.Parse(time.RFC3339Nano, v); s.Format == "date-time" && err != nil {
		return []string{at + ": " + err.Error()}
	}
	return nil
}

// TestSchemaCheck: what the checker is for, it finds.
func TestSchemaCheck(t *testing.T) {
	d := decode[document](t, `{"components": {"schemas": {"X": {"type": "object", "required": ["a"], "additionalProperties": false,
		"properties": {"a": {"type": "string", "format": "date-time"}, "b": {"type": ["array", "null"], "items": {"type": "integer"}},
			"c": {"type": "object", "additionalProperties": {"type": "string"}}, "d": {"enum": ["x"], "type": "string"}}}}}}`)
	of := &schema{Ref: "#/components/schemas/X"}
	for text, want := range map[string]int{
		`{"a": "2026-11-26T08:02:11Z"}`: 0, `{"a": "2026-11-26T08:02:11Z", "b": null, "c": {"k": "v"}, "d": "x"}`: 0,
		`{}`: 1, `{"a": "today"}`: 1, `{"a": 1}`: 1, `{"a": "2026-11-26T08:02:11Z", "e": 1}`: 1, `[]`: 1, `null`: 1,
		`{"a": "2026-11-26T08:02:11Z", "b": [1, 1.5, "x"]}`: 2, `{"a": "2026-11-26T08:02:11Z", "c": {"k": 1}, "d": "y"}`: 2,
	} {
		if wrong := d.check("x", of, decode[any](t, text)); len(wrong) != want {
			t.Errorf("%s: %q, want %d", text, wrong, want)
		}
	}
}
