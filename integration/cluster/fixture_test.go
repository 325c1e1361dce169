//go:build integration

// Package cluster tests all parts together: a Kubernetes cluster on which docs/install.md is
// executed literally, with the operator's chart and signed images from a registry; a shard whose
// server is a container; and machines that are containers with kubelets of their own, which join
// the cluster with what their agents receive. Only the size of the machines is not realistic.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/nstance/nstance/images/base"
	"github.com/nstance/nstance/images/registry"
	"github.com/nstance/nstance/images/release"
	"github.com/nstance/nstance/integration/containers"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/operator/planetest"
)

var engine containers.Engine

const (
	shard  = "us-west-2a" // the name in docs/install.md
	bucket = "cluster"
)

// fixture has the cluster, the shard and the shell for the page.
type fixture struct {
	*containers.World
	net      containers.Network
	registry string // host:port
	clone    string // a clone of the repository: committed files are built
	images   map[string]string
	version  string // of the chart
	store    *containers.Store
	cluster  *containers.Kubernetes
	env      []string // the environment of the page's shell
	home     string   // the shell's home
	// real is the k3s image of K3S_IMAGE; the stand-in's machines can't join it, as they have
	// agents only.
	real string
}

// newFixture starts the cluster, with Cluster API's core, and the shard.
func newFixture(t *testing.T) *fixture {
	f := &fixture{World: engine.Begin(t, "cluster"), real: os.Getenv("K3S_IMAGE")}
	f.net = f.Network("net")
	f.serve()
	f.shell()
	f.publish()
	f.cluster = f.Kubernetes("kubernetes", f.at(30), f.registry, fmt.Sprintf("http://%s:%s", f.net.Address(1), port(f.registry)))
	f.write("kubeconfig", f.cluster.Kubeconfig)
	f.installCore()
	f.shard()
	return f
}

func (f *fixture) at(nth int) containers.At { return containers.At{Network: f.net, Nth: nth} }

// serve serves a registry on loopback, from which the engine pulls without TLS, and on the same
// port of the network's gateway, for the cluster.
func (f *fixture) serve() {
	f.Helper()
	held, err := registry.Open(f.Context(), filepath.Join(f.Dir, "registry"))
	f.Must(err)
	listen := new(net.ListenConfig)
	loopback, err := listen.Listen(f.Context(), "tcp4", "127.0.0.1:0")
	f.Must(err)
	f.registry = loopback.Addr().String()
	gateway, err := listen.Listen(f.Context(), "tcp4", net.JoinHostPort(f.net.Address(1).String(), port(f.registry)))
	f.Must(err)
	server := &http.Server{Handler: held, ReadHeaderTimeout: time.Minute}
	f.Cleanup(func() { _ = server.Close() })
	for _, l := range []net.Listener{loopback, gateway} {
		go func() { _ = server.Serve(l) }() // it ends with the server
	}
}

func port(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// shell puts the tools of docs/install.md into PATH.
func (f *fixture) shell() {
	f.Helper()
	f.home = filepath.Join(f.Dir, "home")
	bin := filepath.Join(f.home, "bin")
	f.Must(os.MkdirAll(bin, 0o755))
	helm := exec.CommandContext(f.Context(), "go", "tool", "-n", "-modfile="+filepath.Join(".ci", "tools", "helm.mod"), "helm")
	cosign := exec.CommandContext(f.Context(), "go", "tool", "-n", "-modfile="+filepath.Join(".ci", "tools", "cosign.mod"), "cosign")
	for name, path := range map[string]string{
		"helm": f.output(helm), "cosign": f.output(cosign), "kubectl": filepath.Join(planetest.Folder(f.T), "kubectl"),
	} {
		f.Must(os.Symlink(path, filepath.Join(bin, name)))
	}
	build := exec.CommandContext(f.Context(), "go", "build", "-o", bin+"/", "./cmd/nstance-admin", "./cmd/nstance-agent")
	f.output(build)
	f.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+f.home, "KUBECONFIG="+filepath.Join(f.home, "kubeconfig"),
		"COSIGN_PASSWORD=", "XDG_CACHE_HOME="+filepath.Join(f.home, ".cache"))
	// With another home, Go would download and build everything again.
	f.Must(os.Mkdir(filepath.Join(f.home, ".cache"), 0o755))
	f.Must(os.Symlink(filepath.Join(cache(f), "nstance"), filepath.Join(f.home, ".cache", "nstance")))
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOENV"} {
		f.env = append(f.env, name+"="+f.output(exec.CommandContext(f.Context(), "go", "env", name)))
	}
}

func cache(f *fixture) string {
	f.Helper()
	dir, err := os.UserCacheDir()
	f.Must(err)
	return dir
}

// output runs a command in the repository.
func (f *fixture) output(cmd *exec.Cmd) string {
	f.Helper()
	cmd.Dir, cmd.Env = f.Root, append(os.Environ(), "CGO_ENABLED=0")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		f.Fatalf("%s: %v: %s", strings.Join(cmd.Args, " "), err, said.String())
	}
	return strings.TrimSpace(string(out))
}

// write writes a file into the shell's home.
func (f *fixture) write(name string, text []byte) {
	f.Helper()
	f.Must(os.WriteFile(filepath.Join(f.home, name), text, 0o600))
}

// run runs a script in the shell, which stops at the first failing command.
func (f *fixture) run(script string) string {
	f.Helper()
	cmd := exec.CommandContext(f.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = f.home, f.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// try is run for scripts that may fail for a while.
func (f *fixture) try(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = f.home, f.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// publish builds, signs and pushes as in docs/install.md, from a clone, since a commit is
// published. The base image is built here.
func (f *fixture) publish() {
	f.Helper()
	f.clone = filepath.Join(f.Dir, "clone")
	f.output(exec.CommandContext(f.Context(), "git", "clone", "-q", "--shared", ".", f.clone))
	if changed := f.output(exec.CommandContext(f.Context(), "git", "status", "--porcelain")); changed != "" {
		f.Logf("the images are those of the last commit, without:\n%s", changed)
	}
	index, err := base.Index(release.Architectures())
	f.Must(err)
	from, err := release.PushIndex(f.Context(), index, f.registry+"/base/static", "local")
	f.Must(err)
	f.env = append(f.env, "KO_DEFAULTBASEIMAGE="+from)
	f.run("cosign generate-key-pair")
	said := f.run("make() { command make -C " + f.clone + ` "$@"; }` + "\n" + f.page().block("make images"))
	built, err := release.Load(filepath.Join(f.clone, "temp", "images"))
	f.Must(err)
	f.images = map[string]string{}
	for _, image := range built.Images {
		f.images[image.Name] = image.Reference
	}
	found := chartFile.FindStringSubmatch(said)
	if found == nil {
		f.Fatalf("the chart's version is not in what was printed:\n%s", said)
	}
	f.version = found[1]
}

// chartFile matches the output of packaging a chart.
var chartFile = regexp.MustCompile(`/nstance-operator-([0-9]\S*)\.tgz`)

const settings = `{
  "cluster": { "id": "CLUSTER", "secrets": {
    "provider": "object-storage", "encryption_key": { "provider": "env", "source": "NSTANCE_ENCRYPTION_KEY" } } },
  "server": {
    "provider": { "kind": "docker", "region": "here", "zone": "SHARD", "options": {
      "image": "AGENT", "network": "NETWORK", NODE } },
    "subnet_pools": { "workers": ["local"] },
    "default_drain_timeout": "1m",
    "health": { "report_interval": "2s", "missed_reports": 30, "shutdown_grace": "5s" },
  },
  "certificates": {
    "kubelet": { "kind": "server", "cn": "kubelet", "dns": ["{{ .Instance.Hostname }}"], "ip": ["{{ .Instance.IP4 }}"], "ttl": 720 }
  },
  "templates": {
    "plain": { "kind": "agt", "arch": "amd64", "subnet_pool": "workers" },
    "knd": { "kind": "knd", "arch": "amd64", "subnet_pool": "workers", "args": ARGS, "vars": { "role": "workers" },
      "userdata": { "content": USERDATA },
      "files": {
        "kubernetes.crt": { "kind": "storage", "source": "files/kubernetes.crt" },
        "token.conf": { "kind": "secret", "source": "bootstrap-token" },
        "bootstrap.conf": { "kind": "string", "content": BOOTSTRAP },
        "kubelet.crt": { "kind": "certificate", "template": "kubelet", "key": { "source": "agent", "name": "kubelet" } }
      } }
  },
  "groups": { "default": {
    "web": { "template": "plain", "size": 1 },
    "pods": { "template": "knd", "size": 0, "vars": { "role": "pods" }, "on_demand": { "namespaces": ["default"], "max": 2 } }
  } },
}`

// node configures machines that become nodes.
const node = `"node": { "image": "MACHINE", "runtime": "RUNTIME", "privileged": true, "tmpfs": ["/run"],
        "binds": ["BIN/nstance-agent:/usr/local/bin/nstance-agent:ro"] }`

// userdata makes a machine join once its agent has received all files.
const userdata = `#!/bin/sh
recv=/opt/nstance-agent/recv
until [ -s $recv/config.hash ]; do sleep 0.2; done
cp $recv/kubernetes.crt /etc/kubernetes/ca.crt
id=$(sed -n 's|.*/containers/\([0-9a-f]*\)/hostname .*|\1|p' /proc/self/mountinfo)
exec kubelet --config=/etc/kubernetes/kubelet.yaml --hostname-override="$(hostname)" --provider-id="docker:///$id" \
  --node-labels=example.com/role={{ .Vars.role }} --cert-dir=/var/lib/kubelet/pki \
  --bootstrap-kubeconfig=$recv/bootstrap.conf --kubeconfig=/var/lib/kubelet/kubeconfig \
  --tls-cert-file=$recv/kubelet.crt --tls-private-key-file=/opt/nstance-agent/keys/kubelet.key
`

// bootstrap is the kubeconfig with which a kubelet requests its certificate.
const bootstrap = `apiVersion: v1
kind: Config
clusters:
- {name: default, cluster: {server: "https://API:6443", certificate-authority: /opt/nstance-agent/recv/kubernetes.crt}}
users:
- {name: default, user: {tokenFile: /opt/nstance-agent/recv/token.conf}}
contexts:
- {name: default, context: {cluster: default, user: default}}
current-context: default
`

// token creates a bootstrap token of the cluster.
const token = "nstnce.0123456789abcdef"

const tokenSecret = `apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-nstnce, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: nstnce, token-secret: 0123456789abcdef, usage-bootstrap-authentication: "true"}
`

// settings are the shard's config.
func (f *fixture) settings() string {
	f.Helper()
	machine, args := "", "{}"
	if f.real == "" {
		args = `{ "node": true }`
		machine = strings.NewReplacer("MACHINE", f.StandIn("k3s"), "RUNTIME", f.Privileged(), "BIN", filepath.Join(f.home, "bin")).Replace(node)
	}
	join := strings.ReplaceAll(bootstrap, "API", f.cluster.Address.String())
	return strings.NewReplacer("CLUSTER", f.Cluster, "AGENT", f.images["nstance-agent"], "NETWORK", f.net.Name, "SHARD", shard,
		"NODE", machine, "ARGS", args, "USERDATA", quoted(userdata), "BOOTSTRAP", quoted(join)).Replace(settings)
}

// shard starts storage and one server, whose machines can join the cluster.
func (f *fixture) shard() {
	f.Helper()
	f.store = f.MinIO("store", f.at(10), containers.Data{})
	objects := f.Bucket(f.store, bucket)
	way, err := clientcmd.RESTConfigFromKubeConfig(f.cluster.Kubeconfig)
	f.Must(err)
	text := f.settings()
	for key, body := range map[string][]byte{"config/" + shard + ".jsonc": []byte(text), "files/kubernetes.crt": way.CAData} {
		_, err := objects.Put(f.Context(), key, body, object.IfAbsent())
		f.Must(err)
	}
	f.write("token.yaml", []byte(tokenSecret))
	f.write("token", []byte(token))
	for name, value := range f.store.Env() {
		f.env = append(f.env, name+"="+value)
	}
	server := f.net.Address(20).String()
	f.env = append(f.env, "NSTANCE_ENCRYPTION_KEY="+containers.EncryptionKey, "NSTANCE_ADMIN_STORAGE_BUCKET="+bucket,
		"NSTANCE_ADMIN_SERVERS="+shard+"="+server+":8993", "NSTANCE_ADMIN_IDENTITY_DIR="+f.home, "NSTANCE_ADMIN_TIMEOUT=2m")
	for _, reference := range []string{"nstance-server", "nstance-agent"} {
		f.Must(f.Pull(f.images[reference]))
	}
	f.Server("server", f.at(20), containers.Server{
		Image: f.images["nstance-server"], Shard: shard, Store: f.store, Bucket: bucket,
		Flags: []string{"--advertise-host", server},
	})
	f.Eventually(minutes, "the server leads", func(ctx context.Context) error {
		said, err := containers.Health(ctx, f.net.Address(20))
		if err == nil && !strings.Contains(said, "leading") {
			err = errors.New(said)
		}
		return err
	})
	f.run(`kubectl apply -f token.yaml
nstance-admin cluster secret put bootstrap-token token
nstance-admin cluster register-operator --output-dir .`)
}
