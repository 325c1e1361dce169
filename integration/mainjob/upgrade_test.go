//go:build integration

package mainjob

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestUpgrade tells story 20: the previous version and this one share a shard.
// Either leads after the other and works on what the other wrote, either's agents
// talk to the other's servers, and going back, with the groups put together again,
// loses nothing.
func TestUpgrade(t *testing.T) {
	v := upOf(t, previous)
	for _, st := range []struct {
		name string
		tell func(*versions)
	}{
		{"20 this version takes over, and back", func(v *versions) { v.handsOver(present); v.handsOver(previous) }},
		{"20 one after the other leads over objects with fields of a version to come", readsTheFuture},
	} {
		t.Run(st.name, func(t *testing.T) { st.tell(v.in(t)) })
	}
}

// handsOver upgrades both servers to a version, or takes them back to it: first the
// standby, which then takes over, then the other. Before and after it the shard
// works.
func (v *versions) handsOver(to string) {
	v.t.Helper()
	from := previous
	if to == previous {
		from = present
	}
	leads, other := v.leader()
	v.runs(v.component(leads).PID, from, "nstance-server")
	v.works(from, to)

	v.swap(other, to)
	v.leader() // the standby follows
	before := v.running("dev-1")
	if to == previous {
		v.putTogether()
	}
	began := time.Now()
	v.dev("stop", leads)
	took := v.readyAfter(other, began)
	v.t.Logf("a server of the %s version acted %s after one of the %s version was told to stop", to, took, from)
	v.noWait(other, began)
	v.start(leads, to)
	v.settle("dev-1", 2)
	if after := v.running("dev-1"); !slices.Equal(before, after) {
		v.t.Errorf("want the same instances %v, have %v", before, after)
	}
	v.works(to, from)
}

// putTogether is what whoever goes back to the previous version does by hand: that one
// knows the groups of all tenants in one object, which this one left saying that they
// have moved.
func (v *versions) putTogether() {
	v.t.Helper()
	together := map[string]any{}
	rev := 0.0
	for _, file := range v.tenants() {
		body, err := os.ReadFile(file)
		if err != nil {
			v.t.Fatal(err)
		}
		var of struct {
			Rev    float64         `json:"rev"`
			Groups json.RawMessage `json:"groups"`
		}
		if err := json.Unmarshal(body, &of); err != nil {
			v.t.Fatalf("%s: %v", file, err)
		}
		rev = max(rev, of.Rev)
		together[strings.TrimSuffix(filepath.Base(file), ".jsonc")] = of.Groups
	}
	body, err := json.Marshal(map[string]any{"rev": rev + 1, "writer": "by hand", "groups": together})
	if err != nil {
		v.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(v.temp, "dev-s3", "groups", "dev-1.jsonc"), body, 0o644); err != nil {
		v.t.Fatal(err)
	}
}

// tenants are the files of the objects that each tenant has of its groups.
func (v *versions) tenants() []string {
	v.t.Helper()
	files, err := filepath.Glob(filepath.Join(v.temp, "dev-s3", "groups", "dev-1", "*.jsonc"))
	if err != nil || len(files) == 0 {
		v.t.Fatalf("no tenant has an object of its groups: %v", err)
	}
	return files
}

// works has a shard that one version leads make instances with agents of both
// versions, told by the tools of both, and reach their agents; then all is as
// before.
func (v *versions) works(leader, other string) {
	v.t.Helper()
	v.quiet("dev-1", 2)
	var all []string
	for n, version := range []string{leader, other} {
		v.install(version, "nstance-admin")
		v.install(version, "nstance-agent")
		v.scale("dev-1", 3+n)
		all = v.running("dev-1")
		newest := all[len(all)-1]
		v.runs(v.agentPID("dev-1", newest), version, "nstance-agent")
		v.says("dev-1", leader+" "+version)
	}
	id := v.onDemand("after-" + all[len(all)-1])
	v.eventually("the instance on demand runs", func() (bool, string) {
		all := v.running("dev-1")
		return slices.Contains(all, id) && len(all) == 5, strings.Join(all, " ")
	})
	v.admin("instance", "delete", id, "--shard", "dev-1")
	v.scale("dev-1", 2)
	v.quiet("dev-1", 2)
}

// says changes a file that every instance has, and waits until all have it.
func (v *versions) says(shard, text string) {
	v.t.Helper()
	config := v.with(shard)
	const begin, end = `"said.conf": { "kind": "string", "content": "`, `" }`
	if _, rest, found := strings.Cut(config, begin); found {
		old, _, _ := strings.Cut(rest, end)
		config = v.with(shard, begin+old+end, begin+text+end)
	} else {
		config = v.with(shard, `"subnet_pool": "workers"`, `"subnet_pool": "workers", "files": { `+begin+text+end+` }`)
	}
	v.write(shard, config)
	v.refresh(shard)
	for _, id := range v.running(shard) {
		v.receives(shard, id, "said.conf", holds(text))
	}
}

// onDemand asks for the instance that a key names.
func (v *versions) onDemand(key string) string {
	v.t.Helper()
	var all []instance
	out := v.admin("instance", "create", "web", "--key", key, "--shard", "dev-1", "-o", "json")
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 {
		v.t.Fatalf("create: %v: %s", err, out)
	}
	return all[0].ID
}

// fromTheFuture is what a version to come says beside, in the objects and in those
// that lie within them.
const fromTheFuture = `"future":{"by":["x",2.50]}`

// grafts are the texts after which fromTheFuture is put into each kind of object.
var grafts = map[string][]string{
	"config":           {"{"},
	"applied":          {`"cluster": {`}, // its first line is of one write, like the election's record
	"groups":           {"{", `"web":{`},
	"leader":           {"{", `"addrs":{`},
	"instance":         {"{", `"provider":{`, `"hashes":{`},
	"request":          {"{"},
	"cluster/operator": {"{"},
}

// objects are the files of one kind of object of the shard.
func (v *versions) objects(kind string) []string {
	v.t.Helper()
	pattern := filepath.Join(v.temp, "dev-s3", kind, "*")
	switch kind {
	case "config", "applied", "groups", "leader":
		pattern = filepath.Join(v.temp, "dev-s3", kind, "dev-1.json*")
	case "instance", "request":
		pattern = filepath.Join(v.temp, "dev-s3", kind, "dev-1", "*.json")
	}
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		v.t.Fatalf("no objects of kind %s: %v", kind, err)
	}
	return files
}

func compact(text []byte) string {
	var out bytes.Buffer
	if json.Compact(&out, text) != nil {
		return string(text)
	}
	return out.String()
}

// modernize has every object of the shard look as if a version to come had written
// it. Its servers must be stopped.
func (v *versions) modernize() {
	v.t.Helper()
	for kind, places := range grafts {
		for _, file := range v.objects(kind) {
			body, err := os.ReadFile(file)
			if err != nil {
				v.t.Fatal(err)
			}
			text := strings.ReplaceAll(compact(body), ","+fromTheFuture, "") // of the time before
			text = strings.ReplaceAll(text, fromTheFuture+",", "")
			for _, place := range places {
				if !strings.Contains(text, place) {
					v.t.Fatalf("%s has no %s: %s", file, place, text)
				}
				text = strings.Replace(text, place, place+fromTheFuture+",", 1)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				v.t.Fatal(err)
			}
		}
	}
}

// keeps checks that what the version to come said is still there.
func (v *versions) keeps(version string, files map[string][]string) {
	v.t.Helper()
	for kind, places := range grafts {
		want := len(places)
		if kind == "leader" {
			want = 0 // each holder's own
		}
		for _, file := range files[kind] {
			body, err := os.ReadFile(file)
			if err != nil {
				v.t.Errorf("the %s version: %v", version, err)
				continue
			}
			if kind == "groups" { // of which each tenant has its part once this version has led
				body = append([]byte(compact(body)), v.ofTenants()...)
			}
			if text := compact(body); strings.Count(text, fromTheFuture) != want {
				v.t.Errorf("after the %s version has led, %s has %d of the %d fields that it does not know:\n%s",
					version, file, strings.Count(text, fromTheFuture), want, text)
			}
		}
	}
}

func (v *versions) ofTenants() (all []byte) {
	v.t.Helper()
	for _, file := range v.tenants() {
		body, err := os.ReadFile(file)
		if err != nil {
			v.t.Fatal(err)
		}
		all = append(all, compact(body)...)
	}
	return all
}

// readsTheFuture has each version lead alone over objects of a version to come, of
// which the election record was released.
func readsTheFuture(v *versions) {
	v.scale("dev-1", 2)
	v.quiet("dev-1", 2)
	asked := v.onDemand("kept")
	v.eventually("the instance on demand runs", func() (bool, string) {
		all := v.running("dev-1")
		return slices.Contains(all, asked) && len(all) == 3, strings.Join(all, " ")
	})
	good := v.with("dev-1")
	v.dev("stop", "standby")
	v.dev("stop", "dev-1")
	for _, version := range []string{previous, present} {
		v.modernize()
		files := map[string][]string{}
		for kind := range grafts {
			files[kind] = v.objects(kind)
		}
		began := time.Now()
		v.start("dev-1", version)
		v.t.Logf("the %s version acted after %s", version, v.readyAfter("dev-1", began))
		v.noWait("dev-1", began)
		v.eventually("all three run", func() (bool, string) {
			all := v.running("dev-1")
			return slices.Contains(all, asked) && len(all) == 3, strings.Join(all, " ")
		})
		if again := v.onDemand("kept"); again != asked {
			v.t.Errorf("for the %s version the key names %s, want %s", version, again, asked)
		}
		before := v.running("dev-1")
		v.scale("dev-1", 4)
		for _, id := range before {
			if !slices.Contains(v.running("dev-1"), id) {
				v.t.Errorf("the %s version lost %s", version, id)
			}
		}
		v.scale("dev-1", 2) // the oldest go: records of the version to come are written
		v.eventually("two are gone", func() (bool, string) {
			out := strings.Join(v.running("dev-1"), " ")
			return v.machines("dev-1") == 3, out
		})
		v.dev("stop", "dev-1")
		v.keeps(version, files)
	}
	v.write("dev-1", good)
	v.dev("start", "dev-1")
	v.dev("start", "standby")
}
