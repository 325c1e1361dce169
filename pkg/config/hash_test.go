package config_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"testing"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	_ "github.com/nstance/nstance/pkg/rapidseed"
)

func object() *rapid.Generator[map[string]any] { return objectOf(2) }

func objectOf(depth int) *rapid.Generator[map[string]any] {
	return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), anyValue(depth), 0, 4)
}

func anyValue(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.String().AsAny(), rapid.Int64Range(-1e6, 1e6).AsAny(), rapid.Bool().AsAny(),
	}
	if depth > 0 {
		kinds = append(kinds, objectOf(depth-1).AsAny(), rapid.SliceOfN(anyValue(depth-1), 0, 3).AsAny())
	}
	return rapid.OneOf(kinds...)
}

func TestMerge(t *testing.T) {
	got := config.Merge(
		map[string]any{"a": 1, "o": map[string]any{"x": 1, "y": map[string]any{"z": 1}}, "l": []any{1, 2}, "s": "text"},
		nil,
		map[string]any{"b": 2, "o": map[string]any{"y": map[string]any{"w": 2}}, "l": []any{3}, "s": map[string]any{"k": 1}},
		map[string]any{"o": map[string]any{"x": nil}},
	)
	want := map[string]any{
		"a": 1, "b": 2, "l": []any{3}, "s": map[string]any{"k": 1},
		"o": map[string]any{"x": nil, "y": map[string]any{"z": 1, "w": 2}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMergeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := object().Draw(t, "a"), object().Draw(t, "b"), object().Draw(t, "c")
		before := mustJSON([]any{a, b, c})
		all := config.Merge(a, b, c)
		if !reflect.DeepEqual(config.Merge(config.Merge(a), nil), config.Merge(a)) {
			t.Fatal("merging nothing changes something")
		}
		if !reflect.DeepEqual(config.Merge(a, a), config.Merge(a)) {
			t.Fatal("merging with itself changes something")
		}
		for k := range c {
			if _, isObject := c[k].(map[string]any); !isObject && !reflect.DeepEqual(all[k], config.Merge(c)[k]) {
				t.Fatalf("the last layer's %q did not win", k)
			}
		}
		spoil(all)
		if mustJSON([]any{a, b, c}) != before {
			t.Fatal("the result shares memory with a layer")
		}
	})
}

// spoil overwrites everything reachable.
func spoil(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			spoil(v[k])
			v[k] = "spoiled"
		}
		v["new"] = "spoiled"
	case []any:
		for i := range v {
			spoil(v[i])
			v[i] = "spoiled"
		}
	}
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func someGroup(t *rapid.T) fleet.Group {
	return fleet.Group{
		Key: fleet.GroupKey{Tenant: "default", Name: "web"}, Template: "knd", Kind: "knd", Arch: "amd64",
		Size: rapid.IntRange(0, 9).Draw(t, "size"), InstanceType: "small", SubnetPool: "workers", Subnets: []string{"a"},
		Args: object().Draw(t, "args"), Vars: object().Draw(t, "vars"),
		Userdata: fleet.Userdata{Source: "inline", Encoding: "plain", Content: rapid.String().Draw(t, "userdata")},
		Files: map[string]fleet.File{
			"a.crt":  {Kind: "certificate", Template: "one", Key: &fleet.FileKey{Source: "agent", Name: "a"}},
			"b.json": {Kind: "json", Content: object().Draw(t, "content")},
		},
	}
}

func hashShard(t testing.TB, ttl string) *config.Shard {
	return parse(t, with(`"certificates": { "one": { "kind": "peer", "cn": "x", "ttl": `+ttl+` }, `+
		`"two": { "kind": "peer", "cn": "y", "ttl": `+ttl+` } }`))
}

func TestHashesChangeWithWhatMatters(t *testing.T) {
	shard := hashShard(t, "100")
	hashes := func(t *rapid.T, g fleet.Group) fleet.Hashes {
		h, err := shard.Hashes(g)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	valid := regexp.MustCompile(`^[0-9a-f]{16}$`)
	rapid.Check(t, func(t *rapid.T) {
		base := someGroup(t)
		before := hashes(t, base)
		if !valid.MatchString(before.Infra) || !valid.MatchString(before.Runtime) {
			t.Fatalf("hashes are %+v", before)
		}
		for name, c := range map[string]struct {
			change         func(*fleet.Group)
			infra, runtime bool
		}{
			"key":            {func(g *fleet.Group) { g.Key.Name = "other" }, false, false},
			"template name":  {func(g *fleet.Group) { g.Template = "other" }, false, false},
			"size":           {func(g *fleet.Group) { g.Size++ }, false, false},
			"subnets":        {func(g *fleet.Group) { g.Subnets = []string{"b"} }, false, false},
			"drain timeout":  {func(g *fleet.Group) { g.DrainTimeout++ }, false, false},
			"load balancer":  {func(g *fleet.Group) { g.LoadBalancers = []string{"www"} }, false, false},
			"leaving":        {func(g *fleet.Group) { g.Leaving = []fleet.InstanceID{"x"} }, false, false},
			"static size":    {func(g *fleet.Group) { g.StaticSize = 9 }, false, false},
			"static":         {func(g *fleet.Group) { g.Static = true }, false, false},
			"files optional": {func(g *fleet.Group) { g.FilesOptional = true }, false, false},
			"nothing":        {func(g *fleet.Group) { g.Args = config.Merge(g.Args) }, false, false},
			"kind":           {func(g *fleet.Group) { g.Kind = "knc" }, true, false},
			"arch":           {func(g *fleet.Group) { g.Arch = "arm64" }, true, false},
			"instance type":  {func(g *fleet.Group) { g.InstanceType = "large" }, true, false},
			"subnet pool":    {func(g *fleet.Group) { g.SubnetPool = "control" }, true, false},
			"args":           {func(g *fleet.Group) { g.Args = config.Merge(g.Args, map[string]any{"new": 1}) }, true, false},
			"userdata":       {func(g *fleet.Group) { g.Userdata.Content += "x" }, true, false},
			"encoding":       {func(g *fleet.Group) { g.Userdata.Encoding = "gzip" }, true, false},
			"vars":           {func(g *fleet.Group) { g.Vars = config.Merge(g.Vars, map[string]any{"new": 1}) }, false, true},
			"files":          {func(g *fleet.Group) { g.Files = map[string]fleet.File{"b.json": g.Files["b.json"]} }, false, true},
			"file content": {func(g *fleet.Group) {
				g.Files = map[string]fleet.File{"a.crt": g.Files["a.crt"], "b.json": {Kind: "json", Content: "new"}}
			}, false, true},
			"file's key": {func(g *fleet.Group) {
				g.Files = map[string]fleet.File{
					"a.crt": {Kind: "certificate", Template: "one", Key: &fleet.FileKey{Source: "agent", Name: "z"}}, "b.json": g.Files["b.json"],
				}
			}, false, true},
		} {
			g := base
			c.change(&g)
			after := hashes(t, g)
			if (after.Infra != before.Infra) != c.infra || (after.Runtime != before.Runtime) != c.runtime {
				t.Fatalf("%s: infra changed %v, runtime changed %v", name, after.Infra != before.Infra, after.Runtime != before.Runtime)
			}
		}
		if again := hashes(t, base); again != before {
			t.Fatal("hashing changed the group")
		}
	})
}

// A certificate's definition is part of the file that uses it.
func TestHashesFollowCertificates(t *testing.T) {
	g := fleet.Group{Files: map[string]fleet.File{"a.crt": {Kind: "certificate", Template: "one"}}}
	short, _ := hashShard(t, "100").Hashes(g)
	long, _ := hashShard(t, "200").Hashes(g)
	if short.Runtime == long.Runtime || short.Infra != long.Infra {
		t.Errorf("hashes are %+v and %+v", short, long)
	}
	other := fleet.Group{Vars: map[string]any{"a": 1}}
	short, _ = hashShard(t, "100").Hashes(other)
	long, _ = hashShard(t, "200").Hashes(other)
	if short != long {
		t.Error("a certificate that no file names counts")
	}
}

const hashInChild = "CONFIG_TEST_HASH_IN_CHILD"

// A changed hash rotates a fleet, so another process must compute the same one.
func TestHashesAreTheSameInAnotherProcess(t *testing.T) {
	shard := parse(t, scene)
	groups, _ := shard.Resolve(nil)
	hashes := map[string]fleet.Hashes{}
	for key, g := range groups {
		hashes[key.String()] = g.Hashes
	}
	here := mustJSON(hashes)
	if file := os.Getenv(hashInChild); file != "" {
		if err := os.WriteFile(file, []byte(here), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	file := t.TempDir() + "/hashes"
	child := exec.Command(os.Args[0], "-test.run=^TestHashesAreTheSameInAnotherProcess$")
	child.Env = append(os.Environ(), hashInChild+"="+file)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	if there, err := os.ReadFile(file); err != nil || string(there) != here {
		t.Errorf("here %s, there %s, %v", here, there, err)
	}
	golden(t, "testdata/hashes.golden", here+"\n")
}
