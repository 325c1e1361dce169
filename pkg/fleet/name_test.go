package fleet_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "web": true, "0": true, "a-b-c": true, "eu-1": true, strings.Repeat("a", 32): true,
		"": false, "-": false, "-a": false, "a-": false, "a--b": false, "A": false, "a_b": false, "a.b": false,
		"a/b": false, "ä": false, "a b": false, "a\n": false, strings.Repeat("a", 33): false,
	} {
		err := fleet.CheckName(name)
		if (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "at most 32 characters") || len(err.Error()) > 300) {
			t.Errorf("%q: the error does not state the rule: %v", name, err)
		}
	}
	if err := fleet.CheckName(strings.Repeat("x", 1<<20)); err == nil || len(err.Error()) > 300 {
		t.Error("the error repeats a megabyte")
	}
}

func TestGroupKey(t *testing.T) {
	a, b, c := fleet.GroupKey{Tenant: "a", Name: "z"}, fleet.GroupKey{Tenant: "b", Name: "a"}, fleet.GroupKey{Tenant: "b", Name: "b"}
	if a.Compare(b) >= 0 || b.Compare(c) >= 0 || b.Compare(a) <= 0 || c.Compare(b) <= 0 || a.Compare(a) != 0 {
		t.Error("keys do not order by tenant, then name")
	}
	if a.String() != "a/z" {
		t.Error(a.String())
	}
}

// A clone shares nothing that could be changed: every pointer and slice in an
// Instance is followed, so that a new field can't be forgotten.
func TestCloneSharesNothing(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	i := fleet.Instance{
		ID: "x", RegisteredAt: new(at), DeletedAt: new(at), IPs: []string{"10.0.0.1"}, OtherKeysSHA256: []string{"ab"},
		Provider: fleet.ProviderRef{ID: "vm", CreateAttemptedAt: new(at)},
		Drain:    &fleet.Drain{Reason: "r", AckedAt: new(at)},

		Overrides: &fleet.Overrides{InstanceType: "t", Vars: map[string]any{"a": "b"}}, RemovalAskedAt: new(at),
	}
	c := i.Clone()
	if !reflect.DeepEqual(i, c) {
		t.Errorf("%+v is not %+v", c, i)
	}
	unshared(t, "Instance", reflect.ValueOf(i), reflect.ValueOf(c))
	if c := (fleet.Instance{}).Clone(); !reflect.DeepEqual(c, fleet.Instance{}) {
		t.Errorf("clone of nothing: %+v", c)
	}
}

func unshared(t *testing.T, path string, a, b reflect.Value) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if a.IsNil() {
			t.Errorf("%s is not set: the test does not cover it", path)
			return
		}
		if a.Pointer() == b.Pointer() {
			t.Errorf("%s is shared", path)
		}
		if a.Kind() == reflect.Pointer {
			unshared(t, path, a.Elem(), b.Elem())
		}
	case reflect.Struct:
		if a.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for n := range a.NumField() {
			unshared(t, path+"."+a.Type().Field(n).Name, a.Field(n), b.Field(n))
		}
	default: // copied with the struct
	}
}

// FuzzParseGroupKey: exactly the results of String parse.
func FuzzParseGroupKey(f *testing.F) {
	for _, s := range []string{"default/web", "prod/api-2", "web", "", "/", "a/", "/b", "a/b/c", "A/b", "a/b\n", "a-/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, err := fleet.ParseGroupKey(s)
		switch {
		case err != nil && key != (fleet.GroupKey{}):
			t.Errorf("%q is %v and %v", s, key, err)
		case err == nil && (key.String() != s || fleet.CheckName(key.Tenant) != nil || fleet.CheckName(key.Name) != nil):
			t.Errorf("%q is %v", s, key)
		}
	})
}
