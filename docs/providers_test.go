package docs_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/docker"
	"github.com/nstance/nstance/pkg/provider/process"
)

// feature is an optional feature of providers, and how its row of providers/README.md begins.
type feature struct {
	row      string
	is       reflect.Type
	accessor string // of a feature that depends on the provider's configuration; empty if none does
}

func features() []feature {
	return []feature{
		{"checks `args`", reflect.TypeFor[provider.ArgsChecker](), "ArgsChecker"},
		{"says at once", reflect.TypeFor[provider.Watcher](), "Watcher"},
		{"finds every machine", reflect.TypeFor[provider.ConsistentReads](), ""},
		{"finds [images]", reflect.TypeFor[provider.ImageResolver](), "ImageResolver"},
		{"registers instances", reflect.TypeFor[provider.LoadBalancer](), "LoadBalancer"},
		{"knows how many addresses", reflect.TypeFor[provider.SubnetCapacity](), "SubnetCapacity"},
		{"knows [CPU and memory]", reflect.TypeFor[provider.InstanceTypes](), "InstanceTypes"},
		{"moves an [address]", reflect.TypeFor[provider.LeaderNetwork](), "LeaderNetwork"},
	}
}

// TestProviderFeatures: the table of providers says of each whether it has a feature, as its code does.
func TestProviderFeatures(t *testing.T) {
	text := readPage(t, "providers/README.md")
	optional, err := os.ReadFile(filepath.Join(root, "pkg/provider/optional.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`interface\{ (\w+)\(\)`).FindAllStringSubmatch(string(optional), -1) {
		if !slices.ContainsFunc(features(), func(f feature) bool { return f.accessor == m[1] }) {
			t.Errorf("the feature %s has no row", m[1])
		}
	}
	for _, f := range features() {
		want := "|"
		for _, p := range []reflect.Type{
			reflect.TypeFor[*aws.Provider](), reflect.TypeFor[*docker.Provider](), reflect.TypeFor[*process.Provider](),
		} {
			want += " " + yesNo(has(p, f)) + " |"
		}
		_, after, found := strings.Cut(text, "\n| "+f.row)
		line, _, _ := strings.Cut(after, "\n")
		if !found || !strings.HasSuffix(line, want) {
			t.Errorf("providers/README.md: the row %q ends %q, want %q, in the order aws, docker, process", f.row, line, want)
		}
	}
}

// has says whether a provider has a feature, at least in some configuration: then it has an accessor,
// which takes nothing but the provider.
func has(p reflect.Type, f feature) bool {
	m, found := p.MethodByName(f.accessor)
	return p.Implements(f.is) || found && m.Type.NumIn() == 1
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
