package config_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

func facts() config.Facts {
	return config.Facts{
		Instance: config.InstanceFacts{ID: "knd1", Kind: "knd", Arch: "arm64", Type: "t4g.small", Hostname: "h", FQDN: "h.x", IP4: "10.0.0.1"},
		Cluster:  config.ClusterFacts{ID: "c", CACert: "PEM"},
		Server:   config.ServerFacts{Shard: "dev-1", RegistrationAddr: "r:1", AgentAddr: "a:1", OperatorAddr: "o:1"},
		Provider: config.ProviderFacts{Kind: "fake", Region: "dev", Zone: "deva"},
		Vars: map[string]any{
			"name": "it's", "n": int64(1000000), "empty": "", "off": nil,
			"list": []any{"a", "b"}, "deep": map[string]any{"x": true, "null": nil},
		},
		Image: map[string]string{"debian_13": "ami-1", "debian-12": "ami-2", "gone": ""},
		Nonce: "jwt",
	}
}

func TestRender(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                 "plain",
		"{ not one }}":          "{ not one }}",
		"{{ .Instance.ID }}":    "knd1",
		"{{ .Cluster.CACert }}": "PEM",
		"{{ .Server.AgentAddr }}/{{ .Provider.Zone }}": "a:1/deva",
		"{{ .Vars.n }}":                                     "1000000",
		"{{ .Vars.empty }}":                                 "",
		"{{ .Vars.deep.x }}":                                "true",
		"{{ .Image.debian_13 }}":                            "ami-1",
		`{{ index .Image "debian-12" }}`:                    "ami-2",
		"{{ index .Vars.list 1 }}":                          "b",
		"{{ json .Vars.deep }}":                             `{"x":true}`,
		"{{ base64 .Instance.ID }}":                         "a25kMQ==",
		"{{ quote .Vars.name }}":                            `'it'\''s'`,
		`{{ if has .Instance "IP6" }}6{{ else }}4{{ end }}`: "4",
		`{{ if has .Vars "deep" "x" }}yes{{ end }}`:         "yes",
		`{{ has .Vars "deep" "null" }}`:                     "false",
		`{{ range $i, $v := .Vars.list }}{{ $i }}{{ $v }}{{ $.Instance.Kind }} {{ end }}`:  "0aknd 1bknd ",
		`{{ range $i, $v := .Vars.list }}{{ if $i }}{{ break }}{{ end }}{{ $v }}{{ end }}`: "a",
		`{{ range .Vars.list }}{{ continue }}{{ end }}done`:                                "done",
	} {
		got, err := config.NewTemplates().For(facts()).Render("x", text)
		if err != nil || got != want {
			t.Errorf("%q gives %q, %v: want %q", text, got, err, want)
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{{ .Vars.nope }}":                                   `map has no entry for key "nope"`,
		"{{ .Vars.deep.nope }}":                              `map has no entry for key "nope"`,
		"{{ .Vars.off }}":                                    `map has no entry for key "off"`,
		"{{ .Vars.deep.null }}":                              `map has no entry for key "null"`,
		"{{ .Instance.IP6 }}":                                `map has no entry for key "IP6"`,
		"{{ .Instance.Nope }}":                               `map has no entry for key "Nope"`,
		"{{ .Image.gone }}":                                  `map has no entry for key "gone"`,
		"{{ .Nonce }}":                                       `map has no entry for key "Nonce"`,
		"{{ $.Nonce }}":                                      `map has no entry for key "Nonce"`,
		`{{ index . "Nonce" }}`:                              `no entry for key "Nonce"`,
		`{{ index .Vars "nope" }}`:                           `no entry for key "nope"`,
		"{{ index .Vars.list 7 }}":                           "no element 7 in a list of 2",
		"{{ index .Vars.list -1 }}":                          "no element -1 in a list of 2",
		`{{ index .Vars.name 0 }}`:                           "a value of type string has no entries",
		"{{ if .Vars.nope }}x{{ end }}":                      `map has no entry for key "nope"`,
		"{{ printf \"<no value>\" }}":                        "has no value",
		"{{ end }}":                                          "template line 1: unexpected {{end}}",
		"line\n{{ nope }}":                                   `template line 2: function "nope" not defined`,
		`{{ define "a" }}{{ end }}`:                          "define and block can't be used",
		`{{ block "a" . }}{{ end }}`:                         "define and block can't be used",
		`{{ template "text" . }}`:                            "template and block can't be used",
		`{{ if true }}{{ template "text" . }}{{ end }}`:      "template and block can't be used",
		"{{ range 9000000000 }}{{ end }}":                    "loops more than",
		"{{ range 90000 }}{{ range 90000 }}{{end}}{{ end }}": "loops more than",
		`{{ range 90000 }}0123456789012345678901234567890123456789012345678901234567890123456789{{ end }}`: "produces more than",
		strings.Repeat("{{ .Vars.name }}", 20_000): "the template has 320000 bytes: " +
			"at most 262144 are allowed",
		"{{ " + strings.Repeat("(", 100_000) + " }}": "template line 1",
	} {
		got, err := config.NewTemplates().For(facts()).Render("args.x", text)
		if err == nil || got != nil && got != "" || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "render args.x: ") || len(err.Error()) > 500 {
			t.Errorf("%.100q gives %q, %v: want an error with %q", text, got, err, want)
		}
	}
}

func TestRenderArgs(t *testing.T) {
	args := map[string]any{
		"{{ .Instance.ID }}": "{{ .Instance.ID }}",
		"n":                  int64(3), "null": nil, "ok": true,
		"deep": map[string]any{"list": []any{"{{ .Instance.Arch }}", map[string]any{"zone": "{{ .Provider.Zone }}"}, 2.5}},
	}
	before := config.Merge(args)
	got, err := config.NewTemplates().For(facts()).Args(args)
	want := map[string]any{
		"{{ .Instance.ID }}": "knd1",
		"n":                  int64(3), "null": nil, "ok": true,
		"deep": map[string]any{"list": []any{"arm64", map[string]any{"zone": "deva"}, 2.5}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if !reflect.DeepEqual(args, before) {
		t.Errorf("the args changed: %v", args)
	}
	_, err = config.NewTemplates().For(facts()).Args(map[string]any{"a": []any{"x", map[string]any{"b.c": "{{ .Vars.nope }}"}}})
	if err == nil || !strings.HasPrefix(err.Error(), `render args.a[1]["b.c"]: template line 1`) {
		t.Errorf("the error is %v: want the path", err)
	}
	_, err = config.NewTemplates().For(facts()).Args(map[string]any{"a": "{{ range 150000 }}{{end}}", "b": "{{ range 150000 }}{{end}}"})
	if err == nil || !strings.Contains(err.Error(), "loops more than") {
		t.Errorf("the error is %v: want one limit for all args together", err)
	}
}

func TestRenderUserdata(t *testing.T) {
	u := fleet.Userdata{Source: "inline", Content: "id={{ .Instance.ID }} nonce={{ .Nonce }}\n"}
	const want = "id=knd1 nonce=jwt\n"
	for encoding, decode := range map[string]func([]byte) ([]byte, error){
		"":      func(b []byte) ([]byte, error) { return b, nil },
		"plain": func(b []byte) ([]byte, error) { return b, nil },
		"gzip": func(b []byte) ([]byte, error) {
			r, err := gzip.NewReader(bytes.NewReader(b))
			if err != nil {
				return nil, err
			}
			return io.ReadAll(r)
		},
	} {
		u.Encoding = encoding
		out, err := config.NewTemplates().For(facts()).Userdata(u)
		if err != nil {
			t.Fatalf("%s: %v", encoding, err)
		}
		if text, err := decode(out); err != nil || string(text) != want {
			t.Errorf("%s decodes to %q, %v", encoding, text, err)
		}
		if again, _ := config.NewTemplates().For(facts()).Userdata(u); !bytes.Equal(out, again) {
			t.Errorf("%s differs from one rendering to the next", encoding)
		}
	}
	u.Encoding = "rot13"
	if _, err := config.NewTemplates().For(facts()).Userdata(u); err == nil || !strings.Contains(err.Error(), "want plain or gzip") {
		t.Errorf("an unknown encoding gives %v", err)
	}
	u.Encoding = "plain"
	none := facts()
	none.Nonce = ""
	if _, err := config.NewTemplates().For(none).Userdata(u); err == nil || !strings.Contains(err.Error(), `no entry for key "Nonce"`) {
		t.Errorf("a missing nonce gives %v", err)
	}
}

// What is known of the facts before rendering is checked with the config.
func TestTemplatesAreCheckedWithTheConfig(t *testing.T) {
	for text, want := range map[string]string{
		`{{ .Instance.IP6 }}{{ .Vars.any.thing }}`:                          "",
		`{{ with .Vars.x }}{{ .ID }}{{ $.Instance.ID }}{{ end }}`:           "",
		`{{ range .Vars.x }}{{ .ID }}{{ else }}{{ .Instance.ID }}{{ end }}`: "",
		`{{ .Foo }}`: "no such fact .Foo (have: " +
			"Cluster, Instance, Provider, Server, Image, Vars, Nonce in userdata)",
		`{{ if .Instance.Foo }}{{ end }}`:                  "no such fact .Instance.Foo (have: ",
		`{{ with .Vars.x }}{{ $.Foo }}{{ end }}`:           "no such fact .Foo",
		`{{ range .Vars.x }}{{ else }}{{ .Foo }}{{ end }}`: "no such fact .Foo",
		`{{ json (printf "%s" .Instance.Foo) }}`:           "no such fact .Instance.Foo",
		`{{ .Image.debian }}`:                              "",
		`{{ .Image.ubuntu }}`:                              `no such image "ubuntu" (have: debian)`,
		`{{ index .Image "ubuntu" }}`:                      `no such image "ubuntu" (have: debian)`,
		`{{ $.Image.ubuntu.x }}`:                           `no such image "ubuntu" (have: debian)`,
		`{{ .Nonce }}`:                                     ".Nonce can only be used in userdata",
		`{{ . `:                                            "template line 1: unclosed action",
		`{{ template "x" }}`:                               "template and block can't be used here",
	} {
		config := with(`"images": { "debian": { "provider": "aws", "fallback": "ami-1" } }, ` +
			`"defaults": { "args": { "x": ` + quoted(text) + ` } }`)
		if want == "" {
			parse(t, config)
			continue
		}
		if got := problemsOf(t, config); !strings.HasPrefix(got, "defaults.args.x: "+want) {
			t.Errorf("%s gives %q, want %q", text, got, want)
		}
	}
	parse(t, with(`"defaults": { "userdata": { "content": "{{ .Nonce }}" } }`))
}
