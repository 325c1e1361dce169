package docs_test

import (
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
)

// row returns the table row of a page whose first cell is `name`; empty when
// there is none.
func row(text, name string) string {
	m := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(name) + "` \\|.*$").FindString(text)
	return m
}

// TestConfigReference: every field of a shard's config has its row, in which the
// default stands that the code gives it, and no row is of a field that is gone.
func TestConfigReference(t *testing.T) {
	text := readPage(t, "configuration.md")
	fields := map[string]bool{}
	fieldsOf("", reflect.TypeFor[config.Shard](), fields)
	if len(fields) < 60 {
		t.Fatalf("%d fields: the walk misses some", len(fields))
	}
	for field := range fields {
		if row(text, field) == "" {
			t.Errorf("configuration.md has no row for %s", field)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+\\.[^`]*)` \\|").FindAllStringSubmatch(text, -1) {
		if !fields[m[1]] {
			t.Errorf("configuration.md has a row for %s, which is no field", m[1])
		}
	}
	for field, value := range defaults(t) {
		if !strings.Contains(row(text, field), "| `"+value+"` |") {
			t.Errorf("configuration.md: %s: the row does not say that the default is `%s`: %s", field, value, row(text, field))
		}
	}
}

// fieldsOf collects the paths of all fields that hold a value; {name} stands for
// the key of a map.
func fieldsOf(path string, t reflect.Type, into map[string]bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	_, isText := reflect.New(t).Interface().(encoding.TextUnmarshaler)
	switch {
	case isText:
	case t.Kind() == reflect.Struct && t.NumField() > 0:
		for i := range t.NumField() {
			if !t.Field(i).IsExported() {
				continue // nothing that a text says
			}
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			fieldsOf(strings.TrimPrefix(path+"."+name, "."), t.Field(i).Type, into)
		}
		return
	case t.Kind() == reflect.Map && structured(t.Elem()):
		fieldsOf(path+".{name}", t.Elem(), into)
		return
	case t.Kind() == reflect.Slice && structured(t.Elem()):
		fieldsOf(path+"[]", t.Elem(), into)
		return
	}
	into[path] = true
}

// structured reports whether values of the type have fields, or keys, that are
// not the user's own.
func structured(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && t.NumField() > 0 || t.Kind() == reflect.Map && structured(t.Elem())
}

// small is as little as a config can say; what else it comes to is defaults.
const small = `{
  "cluster": {"id": "c", "secrets": {"encryption_key": {"provider": "env", "source": "KEY"}}},
  "server": {"provider": {"kind": "docker"}},
  "images": {"{name}": {"provider": "aws", "fallback": "ami-1"}},
  "certificates": {"{name}": {"kind": "server", "cn": "x"}},
  "templates": {"{name}": {"kind": "knd", "arch": "amd64", "userdata": {"content": "x"}}}
}`

func defaults(t *testing.T) map[string]string {
	t.Helper()
	text := strings.ReplaceAll(small, "{name}", "n")
	shard, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	full, err := shard.Encode()
	if err != nil {
		t.Fatal(err)
	}
	found, given := map[string]string{}, map[string]string{}
	leaves("", full, found)
	leaves("", []byte(text), given)
	for path := range given {
		delete(found, path)
	}
	// What is advertised is what is bound.
	for path := range found {
		if strings.HasPrefix(path, "server.advertise.") {
			delete(found, path)
		}
	}
	if len(found) < 25 {
		t.Fatalf("%d defaults: the walk misses some", len(found))
	}
	return found
}

// leaves collects the scalar values of a JSON text by path.
func leaves(path string, text []byte, into map[string]string) {
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) == nil {
		for name, value := range object {
			if name == "n" {
				name = "{name}"
			}
			leaves(strings.TrimPrefix(path+"."+name, "."), value, into)
		}
		return
	}
	var value any
	if json.Unmarshal(text, &value) == nil {
		into[path] = fmt.Sprint(value)
		if value == "" {
			into[path] = `""`
		}
	}
}

// TestFlags: every flag of a program is on its page.
func TestFlags(t *testing.T) {
	flag := regexp.MustCompile(`(?:String|Bool|Duration|Int32|StringSlice)(?:Var)?P?\((?:&[A-Za-z.]+, )?"([a-z][a-z-]+)"`)
	for page, sources := range map[string]string{
		"server.md": "cmd/nstance-server/*.go", "agent.md": "cmd/nstance-agent/*.go", "admin.md": "pkg/admin/cli/*.go",
		"development.md": "cmd/dev/*.go", "operator.md": "pkg/operator/settings/*.go",
		"dev-k8s.md": "cmd/dev-k8s/*.go",
	} {
		text, names := readPage(t, page), matches(t, sources, flag)
		if len(names) < 3 {
			t.Errorf("%s: found only the flags %v", sources, names)
		}
		for _, name := range names {
			if !strings.Contains(text, "--"+name) {
				t.Errorf("%s does not speak of --%s", page, name)
			}
		}
	}
}

// TestEnvironment: every variable that a program reads is on its page.
func TestEnvironment(t *testing.T) {
	for page, source := range map[string]struct {
		files, prefix string
		pattern       *regexp.Regexp
	}{
		"agent.md":    {"pkg/agent/env.go", "", regexp.MustCompile(`"(NSTANCE_[A-Z0-9_]+)"`)},
		"operator.md": {"pkg/operator/settings/settings.go", "", regexp.MustCompile(`"(NSTANCE_[A-Z0-9_]+)"`)},
		"server.md":   {"cmd/nstance-server/*.go", "", regexp.MustCompile(`"(NSTANCE_[A-Z0-9_]+)"`)},
		"storage.md":  {"pkg/object/s3/config.go", "", regexp.MustCompile(`"(AWS_[A-Z0-9_]+)"`)},
		"admin.md":    {"pkg/admin/cli/*.go", "NSTANCE_ADMIN_", regexp.MustCompile(`a\.[a-zA-Z]+\("([A-Z][A-Z_]+)"`)},
	} {
		text, names := readPage(t, page), matches(t, source.files, source.pattern)
		if len(names) == 0 {
			t.Errorf("%s: found no variable", source.files)
		}
		for _, name := range names {
			if !strings.Contains(text, source.prefix+name) {
				t.Errorf("%s does not speak of %s", page, source.prefix+name)
			}
		}
	}
}

// matches returns what pattern captures in the files, without tests.
func matches(t *testing.T, glob string, pattern *regexp.Regexp) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, glob))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files, %v", glob, err)
	}
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pattern.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestTargets: every target of the Makefile that a page names exists.
func TestTargets(t *testing.T) {
	makefile := readPage(t, filepath.Join(root, "Makefile"))
	called := regexp.MustCompile(`\bmake ([a-z][a-z0-9-]+)`)
	for _, p := range pages(t) {
		code := strings.Join(append(span.FindAllString(p.text, -1), fence.FindAllString(p.text, -1)...), "\n")
		for _, m := range called.FindAllStringSubmatch(code, -1) {
			target := regexp.QuoteMeta(m[1])
			if !regexp.MustCompile(`(?m)^` + target + `:|^[a-z -]*\b` + target + `\b[a-z -]*:`).MatchString(makefile) {
				t.Errorf("%s: there is no target %s", p.path, m[1])
			}
		}
	}
}
