//go:build integration

// Package operator runs the stories of the Kubernetes operator with the real binaries: a control
// plane with Cluster API's core, the development stack with two shards whose instances have Nodes,
// and the operator beside them.
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

	"github.com/nstance/nstance/integration/waits"
	"github.com/nstance/nstance/pkg/operator/planetest"
)

// The names of the stack's cluster and of its shards, in Kubernetes and elsewhere.
const (
	clusterName = "example-cluster--default"
	dev1, dev2  = "dev-1", "dev-2"
)

// patience bounds everything that is not measured.
const patience = 3 * time.Minute

// fixture has everything of one story.
type fixture struct {
	*testing.T
	plane     *planetest.Plane
	api       client.Client
	namespace string
	bin, temp string
	env       []string // what temp/dev.env exports
	vars      []string // additional environment of the operator
	config    string   // the operator's
	operator  *operator
	waits     *waits.Waits
}

// newFixture starts everything but the operator, whose permissions it grants. change edits each
// shard's config; flags are for bin/dev.
func newFixture(t *testing.T, change func(shard, config string) string, flags ...string) *fixture {
	t.Helper()
	f := bring(t, change, flags...)
	f.grant()
	return f
}

// newFixtureAlone is newFixture on a control plane of the story's own: clusterctl, for example,
// installs a kind in the clusters between which it moves objects.
func newFixtureAlone(t *testing.T) *fixture {
	t.Helper()
	f := bringOn(t, planetest.Core(t), nil)
	f.grant()
	return f
}

// bring is newFixture without permissions for the operator.
func bring(t *testing.T, change func(shard, config string) string, flags ...string) *fixture {
	t.Helper()
	return bringOn(t, shared.Plane(t), change, flags...)
}

func bringOn(t *testing.T, plane *planetest.Plane, change func(shard, config string) string, flags ...string) *fixture {
	t.Helper()
	f := &fixture{
		T: t, plane: plane, api: plane.Client, namespace: plane.Namespace(t),
		bin: filepath.Join(root(t), "bin"), temp: t.TempDir(), config: operatorConfig, waits: waits.Of(t),
	}
	f.write("kubeconfig", plane.Kubeconfig())
	f.placeExamples(change)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the stack's log:\n%s", f.tail("logs/dev.log", 80))
		}
		f.dev("down")
	})
	f.dev(append([]string{"up", "--kubeconfig", filepath.Join(f.temp, "kubeconfig")}, flags...)...)
	f.env = f.readEnv()
	f.registration()
	return f
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// placeExamples copies the shards' configs, with shorter periods, a drain time and the change.
func (f *fixture) placeExamples(change func(shard, config string) string) {
	f.Helper()
	for _, shard := range []string{dev1, dev2} {
		text, err := os.ReadFile(filepath.Join(root(f.T), "examples", "dev", shard+".jsonc"))
		if err != nil {
			f.Fatal(err)
		}
		config := strings.Replace(waits.Shorten(f.T, string(text)), `"default_drain_timeout": "2s"`, `"default_drain_timeout": "1m"`, 1)
		if change != nil {
			config = change(shard, config)
		}
		const web, pods = `"web": { `, `"on_demand": { "namespaces": ["*"], "max": 100 }, `
		config = strings.Replace(config, web+`"template": "knd"`, web+pods+`"template": "knd"`, 1)
		f.write(filepath.Join("examples", shard+".jsonc"), []byte(config))
	}
}

// registration gives the operator what it needs before it starts, except permissions.
func (f *fixture) registration() {
	f.Helper()
	ca, err := os.ReadFile(filepath.Join(f.temp, "dev-s3", "cluster", "ca.crt"))
	if err != nil {
		f.Fatal(err)
	}
	nonce := f.admin("cluster", "nonce")
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: f.namespace, Name: name} }
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta("nstance-cluster-ca"), Data: map[string]string{"ca.crt": string(ca)}},
		&corev1.Secret{ObjectMeta: meta("nstance-operator-nonce"), Data: map[string][]byte{"nonce.jwt": nonce}},
	} {
		if err := f.api.Create(f.Context(), o); err != nil {
			f.Fatal(err)
		}
	}
}

func (f *fixture) write(name string, text []byte) {
	f.Helper()
	path := filepath.Join(f.temp, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		f.Fatal(err)
	}
}

// tail returns the end of a file in the story's folder.
func (f *fixture) tail(name string, lines int) string {
	text, err := os.ReadFile(filepath.Join(f.temp, name))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// dev runs bin/dev on the story's stack.
func (f *fixture) dev(args ...string) {
	f.Helper()
	args = append(args, "--bin", f.bin, "--temp", f.temp, "--examples", filepath.Join(f.temp, "examples"), "--provider", "process")
	f.run(filepath.Join(f.bin, "dev"), args...)
}

// admin runs nstance-admin, and returns its output.
func (f *fixture) admin(args ...string) []byte {
	f.Helper()
	return f.run(filepath.Join(f.bin, "nstance-admin"), args...)
}

func (f *fixture) run(path string, args ...string) []byte {
	f.Helper()
	defer f.waits.For(filepath.Base(path) + " " + strings.Join(args, " "))()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), f.env...)
	cmd.Env = append(cmd.Env, "NSTANCE_ADMIN_TIMEOUT=2m", "KUBECACHEDIR="+filepath.Join(f.temp, "kubectl"))
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		f.Fatalf("%s %v: %v\n%s%s", filepath.Base(path), args, err, out, said.Bytes())
	}
	return out
}

func (f *fixture) readEnv() (env []string) {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(f.temp, "dev.env"))
	if err != nil {
		f.Fatal(err)
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
func (f *fixture) eventually(what string, check func(context.Context) error) {
	f.Helper()
	defer f.waits.For(what)()
	planetest.Eventually(f.T, patience, what, check)
}

// consistently repeats check for that time, and fails the story with its first error.
func (f *fixture) consistently(during time.Duration, what string, check func(context.Context) error) {
	f.Helper()
	defer f.waits.For(what)()
	planetest.Consistently(f.T, during, what, check)
}
