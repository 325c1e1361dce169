//go:build integration

// Package cluster tells what a platform gets of all parts together: a Kubernetes cluster
// on which docs/install.md is done word for word, with the operator's chart and signed
// images from a registry; a shard whose server is a container; and machines that are
// containers with kubelets of their own, which join the cluster by what their agents
// receive. Nothing is played but the size of the machines.
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
	shard  = "us-west-2a" // as docs/install.md calls it
	bucket = "cluster"
)

// scene is all of it.
type scene struct {
	*containers.World
	net      containers.Network
	registry string // host:port
	clone    string // of the repository: what is built is what was committed
	images   map[string]string
	version  string // of the chart
	store    *containers.Store
	cluster  *containers.Kubernetes
	env      []string // of the shell that the page is read at
	home     string   // and its home
	// real is the k3s that K3S_IMAGE names, which machines of the stand-in's kind don't
	// join: they are agents alone.
	real string
}

// begin brings up the cluster, with Cluster API's core, and the shard.
func begin(t *testing.T) *scene {
	s := &scene{World: engine.Begin(t, "cluster"), real: os.Getenv("K3S_IMAGE")}
	s.net = s.Network("net")
	s.serve()
	s.shell()
	s.publish()
	s.cluster = s.Kubernetes("kubernetes", s.at(30), s.registry, fmt.Sprintf("http://%s:%s", s.net.Address(1), port(s.registry)))
	s.write("kubeconfig", s.cluster.Kubeconfig)
	s.installCore()
	s.shard()
	return s
}

func (s *scene) at(nth int) containers.At { return containers.At{Network: s.net, Nth: nth} }

// serve serves a registry on loopback, where the engine takes images from without TLS,
// and at the same port of the network's gateway, for the cluster.
func (s *scene) serve() {
	s.Helper()
	held, err := registry.Open(s.Context(), filepath.Join(s.Dir, "registry"))
	s.Must(err)
	listen := new(net.ListenConfig)
	loopback, err := listen.Listen(s.Context(), "tcp4", "127.0.0.1:0")
	s.Must(err)
	s.registry = loopback.Addr().String()
	gateway, err := listen.Listen(s.Context(), "tcp4", net.JoinHostPort(s.net.Address(1).String(), port(s.registry)))
	s.Must(err)
	server := &http.Server{Handler: held, ReadHeaderTimeout: 10 * time.Second}
	s.Cleanup(func() { _ = server.Close() })
	for _, l := range []net.Listener{loopback, gateway} {
		go func() { _ = server.Serve(l) }() // it ends with the server
	}
}

func port(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// shell has the tools on its path that docs/install.md names.
func (s *scene) shell() {
	s.Helper()
	s.home = filepath.Join(s.Dir, "home")
	bin := filepath.Join(s.home, "bin")
	s.Must(os.MkdirAll(bin, 0o755))
	helm := exec.CommandContext(s.Context(), "go", "tool", "-n", "-modfile="+filepath.Join(".ci", "tools", "helm.mod"), "helm")
	cosign := exec.CommandContext(s.Context(), "go", "tool", "-n", "-modfile="+filepath.Join(".ci", "tools", "cosign.mod"), "cosign")
	for name, path := range map[string]string{
		"helm": s.output(helm), "cosign": s.output(cosign), "kubectl": filepath.Join(planetest.Folder(s.T), "kubectl"),
	} {
		s.Must(os.Symlink(path, filepath.Join(bin, name)))
	}
	build := exec.CommandContext(s.Context(), "go", "build", "-o", bin+"/", "./cmd/nstance-admin", "./cmd/nstance-agent")
	s.output(build)
	s.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+s.home, "KUBECONFIG="+filepath.Join(s.home, "kubeconfig"),
		"COSIGN_PASSWORD=", "XDG_CACHE_HOME="+filepath.Join(s.home, ".cache"))
	// Another home is no reason to build and compile everything anew, and from elsewhere.
	s.Must(os.Mkdir(filepath.Join(s.home, ".cache"), 0o755))
	s.Must(os.Symlink(filepath.Join(cache(s), "nstance"), filepath.Join(s.home, ".cache", "nstance")))
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOENV"} {
		s.env = append(s.env, name+"="+s.output(exec.CommandContext(s.Context(), "go", "env", name)))
	}
}

func cache(s *scene) string {
	s.Helper()
	dir, err := os.UserCacheDir()
	s.Must(err)
	return dir
}

// output runs a command of the repository's.
func (s *scene) output(cmd *exec.Cmd) string {
	s.Helper()
	cmd.Dir, cmd.Env = s.Root, append(os.Environ(), "CGO_ENABLED=0")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		s.Fatalf("%s: %v: %s", strings.Join(cmd.Args, " "), err, said.String())
	}
	return strings.TrimSpace(string(out))
}

// write writes a file into the shell's home.
func (s *scene) write(name string, text []byte) {
	s.Helper()
	s.Must(os.WriteFile(filepath.Join(s.home, name), text, 0o600))
}

// run runs a script in the shell, which ends at the first command that fails.
func (s *scene) run(script string) string {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = s.home, s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// try is run for what may fail for a while.
func (s *scene) try(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = s.home, s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// publish builds, signs and pushes as docs/install.md says, from a clone: what is
// published is a commit. The base is the one that is made here.
func (s *scene) publish() {
	s.Helper()
	s.clone = filepath.Join(s.Dir, "clone")
	s.output(exec.CommandContext(s.Context(), "git", "clone", "-q", "--shared", ".", s.clone))
	if changed := s.output(exec.CommandContext(s.Context(), "git", "status", "--porcelain")); changed != "" {
		s.Logf("the images are those of the last commit, without:\n%s", changed)
	}
	index, err := base.Index(release.Architectures())
	s.Must(err)
	from, err := release.PushIndex(s.Context(), index, s.registry+"/base/static", "local")
	s.Must(err)
	s.env = append(s.env, "KO_DEFAULTBASEIMAGE="+from)
	s.run("cosign generate-key-pair")
	said := s.run("make() { command make -C " + s.clone + ` "$@"; }` + "\n" + s.page().block("make images"))
	built, err := release.Load(filepath.Join(s.clone, "temp", "images"))
	s.Must(err)
	s.images = map[string]string{}
	for _, image := range built.Images {
		s.images[image.Name] = image.Reference
	}
	found := chartFile.FindStringSubmatch(said)
	if found == nil {
		s.Fatalf("the chart's version is not in what was printed:\n%s", said)
	}
	s.version = found[1]
}

// chartFile is how a chart that was packaged is printed.
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
    "pods": { "template": "knd", "size": 0, "vars": { "role": "pods" } }
  } },
}`

// node says how a machine is run that is to be a node.
const node = `"node": { "image": "MACHINE", "runtime": "RUNTIME", "privileged": true, "tmpfs": ["/run"],
        "binds": ["BIN/nstance-agent:/usr/local/bin/nstance-agent:ro"] }`

// userdata has a machine join once its agent has received all that it needs.
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

// bootstrap is the kubeconfig that a kubelet asks for its certificate with.
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

// token is a bootstrap token of the cluster.
const token = "nstnce.0123456789abcdef"

const tokenSecret = `apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-nstnce, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: nstnce, token-secret: 0123456789abcdef, usage-bootstrap-authentication: "true"}
`

// settings are the shard's.
func (s *scene) settings() string {
	s.Helper()
	machine, args := "", "{}"
	if s.real == "" {
		args = `{ "node": true }`
		machine = strings.NewReplacer("MACHINE", s.StandIn("k3s"), "RUNTIME", s.Privileged(), "BIN", filepath.Join(s.home, "bin")).Replace(node)
	}
	join := strings.ReplaceAll(bootstrap, "API", s.cluster.Address.String())
	return strings.NewReplacer("CLUSTER", s.Cluster, "AGENT", s.images["nstance-agent"], "NETWORK", s.net.Name, "SHARD", shard,
		"NODE", machine, "ARGS", args, "USERDATA", quoted(userdata), "BOOTSTRAP", quoted(join)).Replace(settings)
}

// shard brings up storage and one server, whose machines can join the cluster.
func (s *scene) shard() {
	s.Helper()
	s.store = s.MinIO("store", s.at(10), containers.Data{})
	objects := s.Bucket(s.store, bucket)
	way, err := clientcmd.RESTConfigFromKubeConfig(s.cluster.Kubeconfig)
	s.Must(err)
	text := s.settings()
	for key, body := range map[string][]byte{"config/" + shard + ".jsonc": []byte(text), "files/kubernetes.crt": way.CAData} {
		_, err := objects.Put(s.Context(), key, body, object.IfAbsent())
		s.Must(err)
	}
	s.write("token.yaml", []byte(tokenSecret))
	s.write("token", []byte(token))
	for name, value := range s.store.Env() {
		s.env = append(s.env, name+"="+value)
	}
	server := s.net.Address(20).String()
	s.env = append(s.env, "NSTANCE_ENCRYPTION_KEY="+containers.EncryptionKey, "NSTANCE_ADMIN_STORAGE_BUCKET="+bucket,
		"NSTANCE_ADMIN_SERVERS="+shard+"="+server+":8993", "NSTANCE_ADMIN_IDENTITY_DIR="+s.home)
	for _, reference := range []string{"nstance-server", "nstance-agent"} {
		s.Must(s.Pull(s.images[reference]))
	}
	s.Server("server", s.at(20), containers.Server{
		Image: s.images["nstance-server"], Shard: shard, Store: s.store, Bucket: bucket,
		Flags: []string{"--advertise-host", server},
	})
	s.Eventually(time.Minute, "the server leads", func(ctx context.Context) error {
		said, err := containers.Health(ctx, s.net.Address(20))
		if err == nil && !strings.Contains(said, "leading") {
			err = errors.New(said)
		}
		return err
	})
	s.run(`kubectl apply -f token.yaml
nstance-admin cluster secret put bootstrap-token token
nstance-admin cluster register-operator --output-dir .`)
}
