package config_test

import (
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

func TestImagesOf(t *testing.T) {
	templates := config.NewTemplates()
	s := &config.Shard{
		Images: map[string]config.Image{
			"a": {}, "b-1": {}, "c": {Tenants: config.Tenants{"*"}}, "theirs": {Tenants: config.Tenants{"prod"}},
		},
		Certificates: map[string]config.Certificate{"cert": {CN: "{{ .Image.c }}"}},
	}
	for text, want := range map[string][]string{
		"no template .Image.a":                 nil,
		"{{ .Vars.Image }} {{ .Instance.ID }}": nil,
		"{{ .Image.a }}":                       {"a"},
		"{{ if .Vars.x }}{{ .Image.a }}{{ else }}{{.Image.c}}{{end}}": {"a", "c"},
		`{{ index .Image "b-1" }}`:                                    {"b-1"},
		`{{ if has .Image "b-1" }}x{{ end }}`:                         {"b-1"},
		`{{ with .Vars }}{{ index $.Image "b-1" }}{{ end }}`:          {"b-1"},
		"{{ range .Vars.list }}{{ $.Image.c }}{{ end }}":              {"c"},
		"{{ with .Vars }}{{ .Image.a }}{{ end }}":                     nil, // a var with that name
		"{{ index .Image .Vars.which }}":                              {"a", "b-1", "c"},
		"{{ range .Image }}{{ . }}{{ end }}":                          {"a", "b-1", "c"},
		"{{ json . }}":                                                {"a", "b-1", "c"},
		"{{ $all := $ }}{{ json $all }}":                              {"a", "b-1", "c"},
		"{{ .Image.gone }}":                                           nil,
		"{{ broken":                                                   nil,
	} {
		for where, g := range map[string]fleet.Group{
			"args":     {Args: map[string]any{"deep": []any{map[string]any{"x": text}}}},
			"userdata": {Userdata: fleet.Userdata{Content: text}},
			"content":  {Files: map[string]fleet.File{"x": {Kind: "string", Content: text}}},
			"values":   {Files: map[string]fleet.File{"x": {Kind: "env", Values: map[string]any{"K": text}}}},
		} {
			g.Key.Tenant = "default"
			if got := templates.ImagesOf(s, g); !slices.Equal(got, want) {
				t.Errorf("%s %s: %v, want %v", where, text, got, want)
			}
		}
	}
	g := fleet.Group{Key: fleet.GroupKey{Tenant: "default"}, Files: map[string]fleet.File{"x.crt": {Kind: "certificate", Template: "cert"}}}
	if got := templates.ImagesOf(s, g); !slices.Equal(got, []string{"c"}) {
		t.Errorf("by a certificate: %v", got)
	}
	any := fleet.Group{Key: fleet.GroupKey{Tenant: "prod"}, Args: map[string]any{"x": "{{ index .Image .Vars.which }}"}}
	if got := templates.ImagesOf(s, any); !slices.Equal(got, []string{"c", "theirs"}) {
		t.Errorf("what prod may pick by a var: %v, want its own and the shared one", got)
	}
}
