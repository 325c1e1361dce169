package env_test

import (
	"errors"
	"testing"

	"github.com/nstance/nstance/pkg/env"
)

func TestReader(t *testing.T) {
	set := map[string]string{"A": " a\n", "BLANK": " ", "ON": "1", "OFF": "false", "PERHAPS": "perhaps"}
	r := &env.Reader{Getenv: func(name string) string { return set[name] }}
	if a, none := r.Get("A"), r.Get("BLANK"); a != "a" || none != "" {
		t.Errorf("A is %q and BLANK is %q", a, none)
	}
	if value, name := r.First("NONE", "BLANK", "ON", "A"); value != "1" || name != "ON" {
		t.Errorf("the first is %s, %q", name, value)
	}
	if value, name := r.First("NONE", "BLANK"); value != "" || name != "" {
		t.Errorf("of none the first is %s, %q", name, value)
	}
	for name, want := range map[string]bool{"ON": true, "OFF": false, "NONE": false, "BLANK": false} {
		if r.Bool(name) != want {
			t.Errorf("%s is not %t", name, want)
		}
	}
	r.Fail(nil)
	if err := r.Err(); err != nil {
		t.Errorf("nothing is wrong, and it says %v", err)
	}
	r.Bool("PERHAPS")
	r.Fail(errors.New("more"))
	if err, want := r.Err(), "PERHAPS: \"perhaps\" is not valid: want true or false\nmore"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
