package store_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstance/nstance/cmd/dev-k8s/store"
)

func TestPathsAndFormatOfFiles(t *testing.T) {
	t.Parallel()
	f := open(t, t.TempDir())
	for _, c := range []struct{ key, path string }{ // in this order: the first group has the short folder
		{"/registry/minions/n1", "nodes/n1.json"},
		{"/registry/secrets/default/s", "secrets/default/s.json"},
		{"/registry/services/specs/default/s", "services/default/s.json"},
		{"/registry/services/endpoints/default/s", "endpoints/default/s.json"},
		{"/registry/clusterroles/system:node", "clusterroles/system%3Anode.json"},
		{"/registry/cluster.x-k8s.io/machinepools/default/p", "machinepools/default/p.json"},
		{"/registry/other.example.com/machinepools/default/p", "machinepools.other.example.com/default/p.json"},
		{"/registry/ipam.cluster.x-k8s.io/ipaddresses/default/a", "ipaddresses.ipam.cluster.x-k8s.io/default/a.json"},
		{"/registry/apiregistration.k8s.io/apiservices/v1.apps", "apiservices/v1.apps.json"},
		{"/registry/ipaddresses/10.0.0.1", "ipaddresses/10.0.0.1.json"},
		{"/registry/leases/kube-system/l", "leases/kube-system/l.json"},
	} {
		f.put(c.key, "{\"a\":1}\n")
		if got := f.read(c.path); got != "{\n  \"a\": 1\n}\n" {
			t.Errorf("%s: %q", c.path, got)
		}
	}
	info, err := os.Stat(f.path("secrets/default/s.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a Secret's file: %v, %v", info.Mode(), err)
	}
	for _, key := range []string{"/registry/ranges/serviceips", "/registry/masterleases/10.0.0.1", "compact_rev_key"} {
		f.put(key, "12")
		if e := f.get(key); string(e.Value) != "12" {
			t.Errorf("%s: %v", key, e)
		}
	}
	if _, _, err := f.Commit(nil, func(func(string) *store.Entry) *store.Change {
		return &store.Change{Key: nodeKey, Value: []byte("k8s\x00\x0a")}
	}); err == nil || !strings.Contains(err.Error(), "--storage-media-type") {
		t.Errorf("protobuf: %v", err)
	}
}

func TestLongNames(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := open(t, root)
	for _, name := range []string{strings.Repeat("a", 253), strings.Repeat("a", 252) + "b", strings.Repeat(":", 253), ".hidden"} {
		f.put("/registry/configmaps/default/"+name, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"`+name+`","namespace":"default"}}`)
	}
	files, err := filepath.Glob(filepath.Join(root, "configmaps", "default", "*.json"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%d files: %v", len(files), files)
	}
	// Without the journal, names are restored from the paths and the contents of the files.
	f.stop()
	if err := os.Remove(filepath.Join(root, ".journal")); err != nil {
		t.Fatal(err)
	}
	f = open(t, root)
	if problems := f.Problems(); len(problems) > 0 {
		t.Error(problems)
	}
	if f.get("/registry/configmaps/default/"+strings.Repeat(":", 253)) == nil || f.get("/registry/configmaps/default/.hidden") == nil {
		t.Error("a name was lost")
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	f := open(t, t.TempDir())
	rev := f.put(nodeKey, node(""))
	f.write("nodes/n1.json", strings.Replace(f.read("nodes/n1.json"), `"n1"`, `"n1", "labels": {"a": "b"}`, 1))
	event := f.next(rev)
	if want := node(`,"labels":{"a":"b"}`); !sameJSON(t, event.Entry.Value, want) || event.Entry.Mod != rev+1 || event.Entry.Version != 2 {
		t.Errorf("edited: %s, want %s", event.Entry.Value, want)
	}
	// A change of whitespace only is no change.
	f.write("nodes/n1.json", string(event.Entry.Value))
	f.Take("nodes/n1.json")
	if f.Revision() != rev+1 {
		t.Errorf("revision %d", f.Revision())
	}
	if err := os.Remove(f.path("nodes/n1.json")); err != nil {
		t.Fatal(err)
	}
	if event := f.next(rev + 1); !event.Entry.Deleted() || event.Prev == nil {
		t.Errorf("removed: %+v", event)
	}
}

func TestNewFile(t *testing.T) {
	t.Parallel()
	f := open(t, t.TempDir())
	rev := f.Revision()
	f.write("pods/default/p.json",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"77"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	event := f.next(rev)
	var got struct {
		Metadata struct{ Name, Namespace, UID, CreationTimestamp, ResourceVersion string }
	}
	if err := json.Unmarshal(event.Entry.Value, &got); err != nil {
		t.Fatal(err)
	}
	m := got.Metadata
	if event.Entry.Key != "/registry/pods/default/p" || m.Name != "p" || m.Namespace != "default" || len(m.UID) != 36 ||
		m.CreationTimestamp == "" || m.ResourceVersion != "" {
		t.Errorf("%s is %s", event.Entry.Key, event.Entry.Value)
	}
	if !sameJSON(t, event.Entry.Value, f.read("pods/default/p.json")) {
		t.Errorf("the file is %s", f.read("pods/default/p.json"))
	}
}

// TestHeldBack: an invalid edit is reported with the reason, and the object stays unchanged.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	f := open(t, t.TempDir())
	rev := f.put(nodeKey, node(""))
	f.put("/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com", compact(t, widgetCRD))
	last := f.Revision()
	for _, c := range []struct{ path, text, why string }{
		{"nodes/n1.json", `{"kind":`, "not JSON"},
		{"nodes/n1.json", ``, "not JSON"},
		{"nodes/n1.json", `[]`, "not JSON"},
		{"nodes/n1.json", node(`,"name":"n1"`), "duplicate"},
		{"nodes/n1.json", node(`,"labels":{"a":5}`), "not a valid Node"},
		{"nodes/n1.json", node(`,"lables":{"a":"b"}`), "unknown field"},
		{"nodes/n1.json", strings.Replace(node(""), "n1", "n2", 1), `metadata.name is "n2"`},
		{"nodes/n1.json", strings.Replace(node(""), "u-1", "u-2", 1), "metadata.uid"},
		{"nodes/n1.json", strings.Replace(node(""), "Node", "Pod", 1), "not a kind of nodes"},
		{"nodes/n1.json", strings.Replace(node(""), `"v1"`, `"v7"`, 1), "not a kind of nodes"},
		{"nodes/default/n2.json", `{"kind":"Node","apiVersion":"v1","metadata":{}}`, "are cluster-scoped"},
		{"pods/p.json", `{"kind":"Pod","apiVersion":"v1","metadata":{}}`, "are namespaced"},
		{"pods/a/p.json", `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"b"}}`, `metadata.namespace is "b"`},
		{"pods/a/b/p.json", `{"kind":"Pod","apiVersion":"v1","metadata":{}}`, "not in {resource}"},
		{"clusterroles/a:b.json", `{"kind":"ClusterRole","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{}}`, "a%3Ab.json"},
		{"gadgets/a/g.json", `{"kind":"Gadget","apiVersion":"example.com/v1","metadata":{}}`, "no CustomResourceDefinition"},
		{"widgets/default/w.json", widget("example.com", `{"size":0}`), "spec.size"},
		{"widgets/default/w.json", widget("example.com", `{}`), "spec.size"},
		{"widgets/default/w.json", widget("example.com", `{"size":1,"port":true}`), "spec.port"},
		{"widgets/default/w.json", strings.Replace(widget("example.com", `{"size":1}`), "/v1", "/v2", 1), "no version"},
		{"widgets/default/w.json", strings.Replace(widget("example.com", `{"size":1}`), "Widget", "Gadget", 1), `kind is "Gadget"`},
	} {
		f.write(c.path, c.text)
		f.eventually(c.why, func() bool { return strings.Contains(f.Problems()[c.path], c.why) })
		if !strings.Contains(f.read(".problems"), c.path) {
			t.Errorf("%s is not in .problems", c.path)
		}
	}
	if e := f.get(nodeKey); f.Revision() != last || e.Mod != rev {
		t.Errorf("%s is served, of revision %d; the newest revision is %d", e.Value, e.Mod, f.Revision())
	}
	// Files that are fixed or removed are no problem any more.
	f.write("nodes/n1.json", node(`,"labels":{"a":"b"}`))
	f.write("widgets/default/w.json", widget("example.com", `{"size":1,"port":"http","note":null}`))
	for _, path := range []string{"nodes/default/n2.json", "pods/p.json", "pods/a", "clusterroles/a:b.json", "gadgets"} {
		if err := os.RemoveAll(f.path(path)); err != nil {
			t.Fatal(err)
		}
	}
	f.eventually("nothing is held back", func() bool { return len(f.Problems()) == 0 })
	if _, err := os.Stat(f.path(".problems")); !os.IsNotExist(err) {
		t.Errorf(".problems exists: %v", err)
	}
	if f.get(nodeKey).Mod == rev || f.get("/registry/example.com/widgets/default/w") == nil {
		t.Error("the fixed objects are not served")
	}
}

// TestHeldBackFileIsPreserved: when a client's write replaces a file that is held back, the
// file's content is kept beside it.
func TestHeldBackFileIsPreserved(t *testing.T) {
	t.Parallel()
	f := open(t, t.TempDir())
	f.put(nodeKey, node(""))
	for _, change := range []*store.Change{{Key: nodeKey, Value: []byte(node(`,"labels":{}`))}, {Key: nodeKey, Delete: true}} {
		f.write("nodes/n1.json", "{ unfinished edit")
		f.awaitHeld("nodes/n1.json")
		if _, _, err := f.Commit([]string{nodeKey}, func(func(string) *store.Entry) *store.Change { return change }); err != nil {
			t.Fatal(err)
		}
	}
	f.eventually("nothing is held back", func() bool { return len(f.Problems()) == 0 })
	kept, err := filepath.Glob(f.path("nodes/n1.json.held-*"))
	if err != nil || len(kept) != 2 {
		t.Fatalf("kept: %v, %v", kept, err)
	}
	if text, err := os.ReadFile(kept[0]); err != nil || string(text) != "{ unfinished edit" {
		t.Errorf("kept: %q, %v", text, err)
	}
	if f.get(nodeKey) != nil {
		t.Error("the node exists")
	}
}

// TestUnnoticedEditConflictsWithWrite: an edit that was not noticed yet is applied before a
// concurrent write.
func TestUnnoticedEditConflictsWithWrite(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s, err := store.Open(store.Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Store: s, t: t, root: root} // the files are not watched
	rev := f.put(nodeKey, node(""))
	f.write("nodes/n1.json", node(`,"labels":{"by":"hand"}`))
	if _, _, err := f.Commit([]string{nodeKey}, func(now func(string) *store.Entry) *store.Change {
		if now(nodeKey).Mod != rev+1 {
			t.Errorf("the write is based on revision %d", now(nodeKey).Mod)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestGeneration: an edit of the spec increments the generation, as any other change does; an
// edit of the status does not.
func TestGeneration(t *testing.T) {
	t.Parallel()
	f := open(t, t.TempDir())
	f.put("/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com", compact(t, widgetCRD))
	const key, path = "/registry/example.com/widgets/default/w", "widgets/default/w.json"
	generation := func() any {
		var object struct{ Metadata map[string]any }
		if err := json.Unmarshal(f.get(key).Value, &object); err != nil {
			t.Fatal(err)
		}
		return object.Metadata["generation"]
	}
	f.write(path, widget("example.com", `{"size":1}`))
	f.eventually("generation 1", func() bool { return f.get(key) != nil && generation() == 1.0 })
	f.write(path, strings.Replace(f.read(path), `"size": 1`, `"size": 2`, 1))
	f.eventually("generation 2", func() bool { return generation() == 2.0 })
	rev := f.Revision()
	f.write(path, strings.Replace(f.read(path), `"metadata": {`, `"status": {"ok": true}, "metadata": {`, 1))
	if f.next(rev); generation() != 2.0 {
		t.Errorf("after a change of the status: %v", generation())
	}
}

func compact(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func sameJSON(t *testing.T, a []byte, b string) bool {
	t.Helper()
	return compact(t, string(a)) == compact(t, b)
}
