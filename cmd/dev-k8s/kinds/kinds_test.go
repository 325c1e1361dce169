package kinds_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/cmd/dev-k8s/kinds"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]kinds.ID{
		"/registry/minions/n1":                      {Resource: "nodes", Name: "n1"},
		"/registry/controllers/default/c":           {Resource: "replicationcontrollers", Namespace: "default", Name: "c"},
		"/registry/services/specs/default/s":        {Resource: "services", Namespace: "default", Name: "s"},
		"/registry/services/endpoints/default/s":    {Resource: "endpoints", Namespace: "default", Name: "s"},
		"/registry/ingress/default/i":               {Resource: "ingresses", Namespace: "default", Name: "i"},
		"/registry/pods/minions/ingress":            {Resource: "pods", Namespace: "minions", Name: "ingress"},
		"/registry/example.com/widgets/default/w":   {Group: "example.com", Resource: "widgets", Namespace: "default", Name: "w"},
		"/registry/example.com/nodes/n1":            {Group: "example.com", Resource: "nodes", Name: "n1"},
		"/registry/example.com/services/default/s1": {Group: "example.com", Resource: "services", Namespace: "default", Name: "s1"},
	} {
		got, ok := kinds.Parse(key)
		if !ok || got != want {
			t.Errorf("%s is %+v", key, got)
		}
		if got.Key() != key {
			t.Errorf("the key of %s is %s", key, got.Key())
		}
	}
	for _, key := range []string{
		"", "compact_rev_key", "/registry/", "/registry/health", "/registry/pods", "/registry/pods/", "/registry/pods//p", "/registry/pods/a/b/c",
		"/registry/ranges/serviceips", "/registry/masterleases/10.0.0.1", "/registry/peerserverleases/a", "/other/pods/default/p",
	} {
		if got, ok := kinds.Parse(key); ok {
			t.Errorf("%q is %+v", key, got)
		}
	}
}

// FuzzJudge: an accepted object has the path and the key of its ID.
func FuzzJudge(f *testing.F) {
	f.Add("nodes/n1.json", []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}`))
	f.Add("pods/a/b.json", []byte(`{"apiVersion":"v1","kind":"Pod","metadata":null}`))
	f.Add("x.example.com/%2e.json", []byte(`{"apiVersion":"example.com/v1","kind":"X","metadata":{}}`))
	k, err := kinds.Open(f.TempDir(), func(string) ([]byte, int64) { return nil, 0 })
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path string, text []byte) {
		id, object, err := k.Judge(path, text)
		if err != nil {
			return
		}
		if at, err := k.Path(id); err != nil || at != path {
			t.Errorf("%s is accepted as %+v, whose path is %s (%v)", path, id, at, err)
		}
		if again, ok := kinds.Parse(id.Key()); !ok || again != id {
			t.Errorf("%+v has the key %s, which parses as %+v", id, id.Key(), again)
		}
		if _, err := kinds.Complete(id, object, nil, time.Time{}, func() string { return "u" }); err != nil {
			t.Error(err)
		}
	})
}

func TestComplete(t *testing.T) {
	t.Parallel()
	id := kinds.ID{Resource: "nodes", Name: "n1"}
	before := map[string]any{
		"metadata": map[string]any{"name": "n1", "uid": "u", "creationTimestamp": "then", "generation": int64(3)}, "spec": map[string]any{},
	}
	edit := func(metadata, spec map[string]any) (map[string]any, error) {
		_, err := kinds.Complete(id, map[string]any{"metadata": metadata, "spec": spec}, before, time.Unix(0, 0), func() string { return "new" })
		return metadata, err
	}
	got, err := edit(map[string]any{}, map[string]any{})
	if err != nil || got["uid"] != "u" || got["creationTimestamp"] != "then" || got["generation"] != int64(3) || got["name"] != "n1" {
		t.Errorf("omitted fields: %v, %v", got, err)
	}
	if got, err := edit(map[string]any{}, map[string]any{"podCIDR": "x"}); err != nil || got["generation"] != int64(4) {
		t.Errorf("changed spec: %v, %v", got, err)
	}
	if _, err := edit(map[string]any{"uid": "other"}, nil); !errors.Is(err, kinds.ErrOtherUID) {
		t.Errorf("another uid: %v", err)
	}
}

func TestLongNameRequiresMetadataName(t *testing.T) {
	t.Parallel()
	k, err := kinds.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	path, err := k.Path(kinds.ID{Resource: "nodes", Name: strings.Repeat("n", 253)})
	if err != nil || len(path) > 255 {
		t.Fatalf("%s, %v", path, err)
	}
	if _, _, err := k.Judge(path, []byte(`{"apiVersion":"v1","kind":"Node","metadata":{}}`)); err == nil {
		t.Error("accepted without metadata.name")
	}
}
