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

// TestUpgrade is story 20: the previous version and this one share a shard. Each leads after the
// other and continues from what the other wrote, agents of each talk to the other's servers, and a
// downgrade loses nothing.
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

// handsOver upgrades or downgrades both servers to a version: first the standby, which then takes
// over, then the other. The shard works before and after.
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

// works makes a shard with a leader of one version create instances with agents of both versions,
// by the tools of both, and reach their agents; then all is as before.
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

// says changes a file of every instance, and waits until all have it.
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

// onDemand requests the instance of a key.
func (v *versions) onDemand(key string) string {
	v.t.Helper()
	var all []instance
	out := v.admin("instance", "create", "web", "--key", key, "--shard", "dev-1", "-o", "json")
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 {
		v.t.Fatalf("create: %v: %s", err, out)
	}
	return all[0].ID
}

// fromTheFuture is a field of a future version, for objects and for those within them.
const fromTheFuture = `"future":{"by":["x",2.50]}`

// grafts are the texts after which fromTheFuture is inserted into each kind of object. Records of
// operators are sealed with all their fields, so adding one needs the CA's key.
var grafts = map[string][]string{
	"config":   {"{"},
	"applied":  {`"cluster": {`}, // only its first line is a single write, like the election's record
	"groups":   {"{"},
	"leader":   {"{", `"addrs":{`},
	"instance": {"{", `"provider":{`, `"hashes":{`},
	"request":  {"{"},
}

// objects returns the files of one kind of object of the shard.
func (v *versions) objects(kind string) []string {
	v.t.Helper()
	pattern := filepath.Join(v.temp, "dev-s3", kind, "*")
	switch kind {
	case "config", "applied", "leader":
		pattern = filepath.Join(v.temp, "dev-s3", kind, "dev-1.json*")
	case "groups":
		pattern = filepath.Join(v.temp, "dev-s3", kind, "dev-1", "*", "*.json")
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

// modernize makes every object of the shard look as if a future version had written it. Its servers
// must be stopped.
func (v *versions) modernize() {
	v.t.Helper()
	for kind, places := range grafts {
		for _, file := range v.objects(kind) {
			body, err := os.ReadFile(file)
			if err != nil {
				v.t.Fatal(err)
			}
			text := strings.ReplaceAll(compact(body), ","+fromTheFuture, "") // from before
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

// keeps checks that the future version's fields are still there.
func (v *versions) keeps(version string, files map[string][]string) {
	v.t.Helper()
	for kind, places := range grafts {
		want := len(places)
		if kind == "leader" {
			want = 0 // each holder has its own
		}
		for _, file := range files[kind] {
			body, err := os.ReadFile(file)
			if err != nil {
				v.t.Errorf("the %s version: %v", version, err)
				continue
			}
			if text := compact(body); strings.Count(text, fromTheFuture) != want {
				v.t.Errorf("after the %s version has led, %s has %d of the %d fields that it does not know:\n%s",
					version, file, strings.Count(text, fromTheFuture), want, text)
			}
		}
	}
}

// readsTheFuture makes each version lead alone over objects of a future version, whose election
// record was released.
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
		v.scale("dev-1", 2) // the oldest are deleted: the future version's records are written
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
