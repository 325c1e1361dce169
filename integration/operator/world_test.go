//go:build integration

// Package operator tells the stories of the Kubernetes operator with the real
// binaries: a control plane with Cluster API's core, the development stack with two
// shards whose instances have Nodes, and the operator beside them.
package operator

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/planetest"
)

// The names of the stack's cluster and of its shards, in Kubernetes and out of it.
const (
	clusterName = "example-cluster--default"
	dev1, dev2  = "dev-1", "dev-2"
)

// patience is how long something may take that nothing measures.
const patience = 3 * time.Minute

// world is everything of one story.
type world struct {
	*testing.T
	plane     *planetest.Plane
	api       client.Client
	namespace string
	bin, temp string
	env       []string // what temp/dev.env exports
	vars      []string // what the operator's environment has besides
	config    string   // the operator's
	operator  *operator
}

// begin brings all of it up but the operator, which has its rights. change edits the
// text of each shard's config; flags are for bin/dev.
func begin(t *testing.T, change func(shard, config string) string, flags ...string) *world {
	t.Helper()
	w := bring(t, change, flags...)
	w.grant()
	return w
}

// beginAlone is begin on a control plane of the story's own: clusterctl, for one, installs
// a kind where it moves something from or to.
func beginAlone(t *testing.T) *world {
	t.Helper()
	w := bringOn(t, planetest.Core(t), nil)
	w.grant()
	return w
}

// bring is begin without rights for the operator.
func bring(t *testing.T, change func(shard, config string) string, flags ...string) *world {
	t.Helper()
	return bringOn(t, shared.Plane(t), change, flags...)
}

func bringOn(t *testing.T, plane *planetest.Plane, change func(shard, config string) string, flags ...string) *world {
	t.Helper()
	w := &world{
		T: t, plane: plane, api: plane.Client, namespace: plane.Namespace(t),
		bin: filepath.Join(root(t), "bin"), temp: t.TempDir(), config: operatorConfig,
	}
	w.write("kubeconfig", plane.Kubeconfig())
	w.placeExamples(change)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the stack's log:\n%s", w.tail("logs/dev.log", 80))
		}
		w.dev("down")
	})
	w.dev(append([]string{"up", "--kubeconfig", filepath.Join(w.temp, "kubeconfig")}, flags...)...)
	w.env = w.readEnv()
	w.registration()
	return w
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// placeExamples copies the shards' configs, with time to drain and the change.
func (w *world) placeExamples(change func(shard, config string) string) {
	w.Helper()
	for _, shard := range []string{dev1, dev2} {
		text, err := os.ReadFile(filepath.Join(root(w.T), "examples", "dev", shard+".jsonc"))
		if err != nil {
			w.Fatal(err)
		}
		config := strings.Replace(string(text), `"default_drain_timeout": "2s"`, `"default_drain_timeout": "1m"`, 1)
		if change != nil {
			config = change(shard, config)
		}
		w.write(filepath.Join("examples", shard+".jsonc"), []byte(config))
	}
}

// registration gives the operator what it needs before it starts, but rights.
func (w *world) registration() {
	w.Helper()
	ca, err := os.ReadFile(filepath.Join(w.temp, "dev-s3", "cluster", "ca.crt"))
	if err != nil {
		w.Fatal(err)
	}
	nonce := w.admin("cluster", "nonce")
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: w.namespace, Name: name} }
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta("nstance-cluster-ca"), Data: map[string]string{"ca.crt": string(ca)}},
		&corev1.Secret{ObjectMeta: meta("nstance-operator-nonce"), Data: map[string][]byte{"nonce.jwt": nonce}},
	} {
		if err := w.api.Create(w.Context(), o); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) write(name string, text []byte) {
	w.Helper()
	path := filepath.Join(w.temp, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		w.Fatal(err)
	}
}

// tail is the end of a file of the story's folder.
func (w *world) tail(name string, lines int) string {
	text, err := os.ReadFile(filepath.Join(w.temp, name))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// dev runs bin/dev on the story's stack.
func (w *world) dev(args ...string) {
	w.Helper()
	args = append(args, "--bin", w.bin, "--temp", w.temp, "--examples", filepath.Join(w.temp, "examples"), "--provider", "process")
	w.run(filepath.Join(w.bin, "dev"), args...)
}

// admin asks as a person would, and returns the answer.
func (w *world) admin(args ...string) []byte {
	w.Helper()
	return w.run(filepath.Join(w.bin, "nstance-admin"), args...)
}

func (w *world) run(path string, args ...string) []byte {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), w.env...)
	cmd.Env = append(cmd.Env, "KUBECACHEDIR="+filepath.Join(w.temp, "kubectl"))
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		w.Fatalf("%s %v: %v\n%s%s", filepath.Base(path), args, err, out, said.Bytes())
	}
	return out
}

func (w *world) readEnv() (env []string) {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(w.temp, "dev.env"))
	if err != nil {
		w.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if ok {
			env = append(env, name+"="+strings.Trim(value, "'"))
		}
	}
	return env
}

// eventually repeats check until it returns no error.
func (w *world) eventually(what string, check func(context.Context) error) {
	w.Helper()
	planetest.Eventually(w.T, patience, what, check)
}
