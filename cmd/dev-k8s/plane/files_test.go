package plane_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/nstance/nstance/cmd/dev-k8s/kinds"
	"github.com/nstance/nstance/cmd/dev-k8s/store"
)

// write writes a file, as an editor does.
func (c *cluster) write(t *testing.T, file, text string) {
	t.Helper()
	full := filepath.Join(c.root, filepath.FromSlash(file))
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestEditedFiles: watches report nodes that are created, changed, broken, fixed and removed as
// files.
func TestEditedFiles(t *testing.T) {
	t.Parallel()
	c := files(t)
	nodes := c.client.CoreV1().Nodes()
	w, err := nodes.Watch(t.Context(), metav1.ListOptions{LabelSelector: "source=file"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	next := func(want watch.EventType) *corev1.Node {
		t.Helper()
		began := time.Now()
		select {
		case event := <-w.ResultChan():
			node, ok := event.Object.(*corev1.Node)
			if !ok || event.Type != want {
				t.Fatalf("%s %v, want %s", event.Type, event.Object, want)
			}
			t.Logf("%s after %v", want, time.Since(began).Round(time.Millisecond))
			return node
		case <-time.After(timeout):
			t.Fatalf("no %s", want)
		}
		return nil
	}
	const file = "nodes/by-hand.json"
	c.write(t, file, `{"apiVersion":"v1","kind":"Node","metadata":{"labels":{"source":"file"}}}`)
	made := next(watch.Added)
	if made.Name != "by-hand" || made.UID == "" || made.CreationTimestamp.IsZero() {
		t.Errorf("created: %+v", made.ObjectMeta)
	}
	text, err := os.ReadFile(filepath.Join(c.root, file))
	if err != nil {
		t.Fatal(err)
	}
	c.write(t, file, strings.Replace(string(text), `"file"`, `"file", "n": 5`, 1)) // a label is a string
	eventually(t, "it is reported", func() error {
		problems, err := os.ReadFile(filepath.Join(c.root, ".problems"))
		if err == nil && !strings.Contains(string(problems), file) {
			err = errors.New(string(problems))
		}
		return err
	})
	if list, err := nodes.List(t.Context(), metav1.ListOptions{LabelSelector: "source=file"}); err != nil || len(list.Items) != 1 ||
		list.Items[0].ResourceVersion != made.ResourceVersion {
		t.Errorf("while it is broken: %v, %v", list, err)
	}
	c.write(t, file, strings.Replace(string(text), `"source":`, `"n": "5", "source":`, 1))
	changed := next(watch.Modified)
	if changed.Labels["n"] != "5" || changed.UID != made.UID {
		t.Errorf("fixed: %+v", changed.ObjectMeta)
	}
	// A client with the old version can't overwrite the manual edit.
	if _, err := nodes.Update(t.Context(), made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update with the old version: %v", err)
	}
	if err := os.Remove(filepath.Join(c.root, file)); err != nil {
		t.Fatal(err)
	}
	next(watch.Deleted)
	if _, err := nodes.Get(t.Context(), "by-hand", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after its removal: %v", err)
	}
}

// TestReopenWithoutJournal: all objects that the API server has stored, in any version, are
// accepted when only the files are left. The schemas of the project's own definitions validate
// edits.
func TestReopenWithoutJournal(t *testing.T) {
	t.Parallel()
	c := files(t)
	crd := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	crds := c.dynamic.Resource(crd)
	definitions, err := filepath.Glob("../../../config/crd/bases/*.yaml")
	if err != nil || len(definitions) < 3 {
		t.Fatal(definitions, err)
	}
	for _, file := range definitions {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &crd.Object); err != nil {
			t.Fatal(err)
		}
		if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const file = "nstanceclusters/default/alone.json"
	c.write(t, file, `{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1","kind":"NstanceCluster","metadata":{},"spec":"none"}`)
	eventually(t, "it is reported", func() error {
		problems, err := os.ReadFile(filepath.Join(c.root, ".problems"))
		if err == nil && !strings.Contains(string(problems), file) {
			err = errors.New(string(problems))
		}
		return err
	})
	if err := os.Remove(filepath.Join(c.root, filepath.FromSlash(file))); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(root, visible{os.DirFS(c.root)}); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stored, err := s.Range(store.Query{Key: "\x00", End: "\x00"})
	if err != nil || stored.Count < 100 {
		t.Errorf("%d objects, %v", stored.Count, err)
	}
	for file, why := range s.Problems() {
		t.Errorf("%s: %s", file, why)
	}
}

// visible is a folder without its hidden files.
type visible struct{ fs.FS }

func (v visible) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(v.FS, name)
	return slices.DeleteFunc(all, func(d fs.DirEntry) bool {
		// Objects that concurrent tests create and delete are left out.
		return strings.HasPrefix(d.Name(), ".") || strings.Contains(d.Name(), "talk") ||
			slices.Contains([]string{"many", "leases", "by-hand.json", "steady.json"}, d.Name())
	}), err
}

// TestKindsOfServer: for every built-in resource of the server, the store has its kind, and
// whether it is namespaced.
func TestKindsOfServer(t *testing.T) {
	t.Parallel()
	c := files(t)
	_, lists, err := c.client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	k, err := kinds.Open(t.TempDir(), func(string) ([]byte, int64) { return nil, 0 })
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, list := range lists {
		if list.GroupVersion == "talk.example.com/v1" || strings.HasPrefix(list.GroupVersion, "infrastructure.cluster.x-k8s.io/") {
			continue // defined by concurrent tests
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "watch") {
				continue
			}
			n++
			ns := ""
			if r.Namespaced {
				ns = "default"
			}
			file := path.Join(r.Name, ns, "x.json")
			if _, _, err := k.Judge(file, fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{}}`, list.GroupVersion, r.Kind)); err != nil {
				t.Errorf("%s, %s: %v", list.GroupVersion, file, err)
			}
		}
	}
	if n < 45 {
		t.Errorf("only %d resources", n)
	}
}

// TestNodesStayReady without heartbeats. With the node lifecycle controller, they would be
// unready in less than a minute.
func TestNodesStayReady(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it lasts more than a minute")
	}
	t.Parallel()
	c := files(t)
	nodes := c.client.CoreV1().Nodes()
	c.write(t, "nodes/steady.json", `{"apiVersion":"v1","kind":"Node","metadata":{},"status":{"conditions":[{"type":"Ready","status":"True",
		"reason":"Said","lastHeartbeatTime":"2026-01-02T03:04:05Z","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`)
	wait := 70 * time.Second
	if long, err := time.ParseDuration(os.Getenv("READY_FOR")); err == nil {
		wait = long
	}
	eventually(t, "the node", func() error {
		_, err := nodes.Get(t.Context(), "steady", metav1.GetOptions{})
		return err
	})
	for end := time.Now().Add(wait); time.Now().Before(end); time.Sleep(2 * time.Second) {
		node, err := nodes.Get(t.Context(), "steady", metav1.GetOptions{})
		if err != nil || node.Status.Conditions[0].Status != corev1.ConditionTrue || len(node.Spec.Taints) > 0 {
			t.Fatalf("%+v, %+v, %v", node.Status.Conditions, node.Spec.Taints, err)
		}
	}
}

// TestTenThousandObjects prints the time and memory that they need.
func TestTenThousandObjects(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it writes 10,000 files")
	}
	t.Parallel()
	c := files(t)
	const many, workers = 10_000, 16
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "many"}}
	if _, err := c.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	maps := c.client.CoreV1().ConfigMaps("many")
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	w, err := maps.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	began, seen := time.Now(), make(chan time.Duration, 1)
	go func() {
		for n := 0; n < many; n++ {
			if _, ok := <-w.ResultChan(); !ok {
				return
			}
		}
		seen <- time.Since(began)
	}()
	var group sync.WaitGroup
	failed := make(chan error, workers)
	for worker := range workers {
		group.Go(func() {
			for i := worker; i < many; i += workers {
				if _, err := maps.Create(ctx, configMap(fmt.Sprintf("c%05d", i), strings.Repeat("x", 1000)), metav1.CreateOptions{}); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	t.Logf("%d objects of 1 kB created in %v", many, time.Since(began).Round(time.Millisecond))
	select {
	case after := <-seen:
		t.Logf("a watch received all after %v", after.Round(time.Millisecond))
	case <-ctx.Done():
		t.Fatal("a watch did not receive all")
	}
	began = time.Now()
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != many {
		t.Fatalf("%d listed, %v", len(list.Items), err)
	}
	t.Logf("listed in %v", time.Since(began).Round(time.Millisecond))
	began, options, n := time.Now(), metav1.ListOptions{Limit: 500}, 0
	for {
		page, err := maps.List(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		if n += len(page.Items); page.Continue == "" {
			break
		}
		options.Continue = page.Continue
	}
	t.Logf("%d listed in pages of 500 in %v", n, time.Since(began).Round(time.Millisecond))
	if n != many {
		t.Errorf("%d listed in pages", n)
	}
	t.Logf("memory of this process, including the store: %s", memory(t, "self"))
}

// memory returns the resident memory of a process.
func memory(t *testing.T, pid string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
