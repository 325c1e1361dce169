package admin_test

import (
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/admin"
)

func TestNearest(t *testing.T) {
	names := []string{"web", "web-2", "workers", "build", "build", "jobs"}
	for name, want := range map[string][]string{
		"wbe": {"web"}, "wokers": {"workers"}, "WORKERS": {"workers"}, "work": {"workers"}, "buidl": {"build"}, "database": nil, "": nil,
		"web-3": {"web-2"}, "x": nil, "joobs": {"jobs"},
	} {
		if got := admin.Nearest(name, names); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if got := admin.Meant("wbe", names); got != ": did you mean web?" {
		t.Errorf("meant %q", got)
	}
	if got := admin.Meant("database", names); got != "" {
		t.Errorf("meant %q", got)
	}
}
