package delivery

import (
	"maps"
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// A changed var renders again only the file that uses it, unless the instance has vars of its own.
func TestOnlyWhatChangedIsRendered(t *testing.T) {
	templates := config.NewTemplates()
	for _, alone := range []bool{false, true} {
		render := func(color string, before *Set) *rendering {
			out, err := recipe{
				group: fleet.Group{Files: map[string]fleet.File{
					"a.conf": {Kind: kindString, Content: "{{ .Vars.color }}"},
					"b.conf": {Kind: kindString, Content: "{{ .Vars.other }}"},
					"c.env":  {Kind: kindEnv, Values: map[string]any{"ID": "{{ .Instance.ID }}"}},
				}},
				values: templates.For(config.Facts{
					Instance: config.InstanceFacts{ID: "knd1"}, Vars: map[string]any{"color": color, "other": "x"},
				}),
				allowed: func(fleet.File) error { return nil }, before: before, alone: alone,
			}.render()
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		first := render("red", nil)
		second := render("blue", first.set)
		want := []string{"a.conf"}
		if alone {
			want = []string{"a.conf", "b.conf", "c.env"}
		}
		if got := slices.Sorted(maps.Keys(second.contents)); !slices.Equal(got, want) {
			t.Errorf("alone %v: rendered %v, want %v", alone, got, want)
		}
		if all := render("blue", nil); all.set.id() != second.set.id() || all.set.size != second.set.size {
			t.Errorf("alone %v: the set is %+v, want %+v", alone, second.set, all.set)
		}
	}
}
