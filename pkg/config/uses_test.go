package config_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/config"
	_ "github.com/nstance/nstance/pkg/rapidseed"
)

// A value that could be rendered differently is always said to be affected.
func TestAffectsIsTrue(t *testing.T) {
	differed, spared := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		templates := config.NewTemplates()
		text := strings.Join(rapid.SliceOfN(rapid.Custom(drawTemplate), 1, 3).Draw(t, "text"), " ")
		before, after := drawFacts(t, "before"), drawFacts(t, "after")
		was, wasErr := templates.For(before).Render("x", text)
		is, isErr := templates.For(after).Render("x", text)
		affected := templates.For(after).Since(before).Affects(map[string]any{"deep": []any{text}})
		if same := was == is && fmt.Sprint(wasErr) == fmt.Sprint(isErr); !same {
			differed++
			if !affected {
				t.Fatalf("%s gives %q, %v and then %q, %v, and is not affected", text, was, wasErr, is, isErr)
			}
		} else if !affected && !reflect.DeepEqual(before, after) {
			spared++
		}
	})
	if differed == 0 || spared == 0 {
		t.Errorf("%d differed and %d were spared: want some of both", differed, spared)
	}
}

// drawTemplate draws a template that uses facts in one of the ways in which templates can.
func drawTemplate(t *rapid.T) string {
	group := rapid.SampledFrom([]string{"Vars", "Instance", "Image"}).Draw(t, "group")
	name := map[string][]string{"Vars": {"a", "b-1", "deep"}, "Instance": {"IP4", "IP6"}, "Image": {"x"}}[group]
	form := rapid.SampledFrom([]string{
		"{{ .G.N }}", "{{ $.G.N }}", `{{ index .G "N" }}`, `{{ index $.G "N" }}`, `{{ if has .G "N" }}y{{ end }}`, `{{ has $.G "N" }}`,
		"{{ json .G }}", "{{ json . }}", "{{ json $ }}", "{{ with .G }}{{ .N }}{{ end }}", "{{ with .G }}{{ json . }}{{ end }}",
		"{{ range .G }}{{ . }}{{ end }}", "{{ range $k, $v := .G }}{{ $k }}{{ $v }}{{ $.G.N }}{{ end }}", "{{ $x := .G }}{{ $x.N }}",
		"{{ $x := . }}{{ $x.G.N }}", `{{ (index . "G").N }}`, `{{ index (index $ "G") "N" }}`, "{{ with $ }}{{ .G.N }}{{ end }}",
		`{{ .G.N | quote }}`, `{{ printf "%v" .G.N }}`, `{{ if false }}{{ else }}{{ .G.N }}{{ end }}`,
		"{{ with false }}{{ else }}{{ .G.N }}{{ end }}",
		`{{ with $x := .G.N }}{{ $x }}{{ end }}`, `{{ has . "G" "N" }}`, `{{ if and (has .G "N") true }}{{ .G.N }}{{ end }}`, "no template .G.N",
		`{{ $n := "N" }}{{ index .G $n }}`, `{{ range $.G }}{{ with $.G }}{{ .N }}{{ end }}{{ end }}`, "{{ broken", `{{ has .G "N" "x" }}`,
	}).Draw(t, "form")
	return strings.NewReplacer("G", group, "N", rapid.SampledFrom(name).Draw(t, "name")).Replace(form)
}

func drawFacts(t *rapid.T, label string) config.Facts {
	value := func(name string) string { return rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, label+" "+name) }
	f := config.Facts{Vars: map[string]any{}, Image: map[string]string{"x": value("x")}}
	f.Instance.IP4, f.Instance.IP6 = value("IP4"), value("IP6")
	for _, name := range []string{"a", "b-1"} {
		if v := value(name); v != "" {
			f.Vars[name] = v
		}
	}
	if v := value("deep"); v != "" {
		f.Vars["deep"] = map[string]any{"x": v, "a": v}
	}
	return f
}

// What does not use a fact that differs is not affected.
func TestAffectsOnlyWhatUsesIt(t *testing.T) {
	before, after := facts(), facts()
	after.Vars = config.Merge(after.Vars, map[string]any{"name": "another"})
	d := config.NewTemplates().For(after).Since(before)
	for text, want := range map[string]bool{
		"{{ .Vars.name }}":                    true,
		"{{ json .Vars }}":                    true,
		"{{ json . }}":                        true,
		`{{ index .Vars "name" }}`:            true,
		"{{ .Vars.n }} of {{ .Instance.ID }}": false,
		`{{ index .Vars "n" }}`:               false,
		"{{ json .Instance }}":                false,
		"plain name":                          false,
	} {
		if got := d.Affects(text); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
