package provider_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
)

type sample struct {
	Name string            `json:"name"`
	Size int               `json:"size"`
	Env  map[string]string `json:"env"`
}

func TestDecode(t *testing.T) {
	var s sample
	err := provider.Decode("args", map[string]any{"name": "a", "size": 3.0, "env": map[string]any{"A": "1"}}, &s).Err()
	if err != nil || s.Name != "a" || s.Size != 3 || s.Env["A"] != "1" {
		t.Fatalf("decode gives %+v, %v", s, err)
	}
	for want, values := range map[string]map[string]any{
		"args.colour: no such field (have: env, name, size)": {"colour": "red"},
		"args.NAME: no such field":                           {"NAME": "a"},
		"args.size: got a string: want a number":             {"size": "3"},
		"args.env: got an array: want an object":             {"env": []any{}},
		"args.env: holds a number: want a string":            {"env": map[string]any{"A": 1}},
		"args: json": {"name": func() {}},
	} {
		err := provider.Decode("args", values, &sample{}).Err()
		if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want ErrInvalid with %q", values, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"a","size":1,"env":{"A":"b"}}`))
	f.Add([]byte(`{"env":{"A":1}}`))
	f.Add([]byte(`{"size":1e99,"x":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var values map[string]any
		if json.Unmarshal(data, &values) != nil {
			return
		}
		var s sample
		err := provider.Decode("args", values, &s).Err()
		if err != nil && !errors.Is(err, provider.ErrInvalid) {
			t.Errorf("%v is not ErrInvalid", err)
		}
	})
}
