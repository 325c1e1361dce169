package docker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/leaktest"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
	"github.com/nstance/nstance/pkg/provider/providertest"
)

// testAgent is the program in the test's image: it checks that an agent's folders are readable
// and writable, uses up the memory if requested, and waits for SIGTERM.
const testAgent = `package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	nonce, err := os.ReadFile(os.Getenv("NSTANCE_IDENTITY_DIR") + "/nonce.jwt")
	for _, dir := range []string{"IDENTITY", "KEYS", "RECV"} {
		if err == nil {
			err = os.WriteFile(os.Getenv("NSTANCE_"+dir+"_DIR")+"/probe", nil, 0o600)
		}
	}
	host, _ := os.Hostname()
	fmt.Println(string(nonce), host, os.Getuid(), os.Getenv("COLOUR"), err)
	for eaten := []byte(nil); os.Getenv("EAT") != ""; {
		eaten = append(eaten, make([]byte, 1<<20)...)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
}
`

// engine is shared by the tests on a real engine; without one, skip has the reason.
type engine struct {
	api     *client.Client
	image   string
	program []byte // the test's agent
	skip    string
}

var live engine

func TestMain(m *testing.M) { leaktest.Main(func() int { return tests(m) }) }

func tests(m *testing.M) int {
	live = prepare()
	code := m.Run()
	if live.api == nil {
		return code
	}
	left := removeAll(live.api, provider.TagClusterID, func(labels map[string]string) bool {
		return strings.HasPrefix(labels[provider.TagClusterID], runName())
	})
	if len(left) > 0 {
		fmt.Fprintln(os.Stderr, "FAIL: the tests left containers behind, which are removed now:", left)
		code = max(code, 1)
	}
	if live.image != "" {
		if err := docker.RemoveImage(context.Background(), "", live.image); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// runName returns the prefix of this run's names.
func runName() string { return fmt.Sprintf("test-%d", os.Getpid()) }

func prepare() engine {
	if os.Getenv("ENGINE") == "0" {
		return engine{skip: "ENGINE=0"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := docker.Ping(ctx, ""); err != nil {
		return engine{skip: "no container engine answers: " + err.Error()}
	}
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return engine{skip: err.Error()}
	}
	dir, err := os.MkdirTemp("", "docker-test-*")
	if err != nil {
		return engine{skip: err.Error()}
	}
	defer os.RemoveAll(dir)
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "agent")
	if err := os.WriteFile(source, []byte(testAgent), 0o600); err != nil {
		return engine{skip: err.Error()}
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		return engine{skip: fmt.Sprintf("the test's agent does not compile: %v: %s", err, out)}
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return engine{skip: err.Error()}
	}
	e := engine{api: api, program: program, image: "nstance-" + runName() + ":latest"}
	if err := docker.BuildAgentImage(ctx, "", binary, e.image); err != nil {
		return engine{api: api, skip: err.Error()}
	}
	return e
}

// removeAll removes the containers with a label that match, and returns their names.
func removeAll(api *client.Client, label string, match func(map[string]string) bool) (removed []string) {
	ctx := context.Background()
	all, err := api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label))})
	for _, c := range all {
		if match(c.Labels) {
			removed = append(removed, fmt.Sprint(c.Names, " ", c.Image, " ", c.Status))
			err = errors.Join(err, api.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "clean up:", err)
	}
	return removed
}

func needEngine(t *testing.T) engine {
	t.Helper()
	if live.skip != "" {
		t.Skip("SKIPPED, the docker provider is not tested against an engine: " + live.skip)
	}
	return live
}

var counter atomic.Int64

// newCluster returns a cluster ID for this test only, and removes its containers at the end.
func newCluster(t *testing.T, e engine) string {
	name := fmt.Sprintf("%s-%d", runName(), counter.Add(1))
	t.Cleanup(func() {
		removeAll(e.api, provider.TagClusterID, func(labels map[string]string) bool {
			cluster := labels[provider.TagClusterID]
			return cluster == name || strings.HasPrefix(cluster, name+"-")
		})
	})
	return name
}

func open(t *testing.T, e engine, scope provider.Scope, options map[string]any) *docker.Provider {
	t.Helper()
	cfg, err := docker.Default(scope, slog.New(slog.DiscardHandler)).WithOptions(options)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Image == "" {
		cfg.Image = e.image
	}
	p, err := docker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestConformance(t *testing.T) {
	e := needEngine(t)
	providertest.Run(t, providertest.Harness{Parallel: 4, New: func(t *testing.T) providertest.World {
		return providertest.World{
			Cluster: newCluster(t, e),
			Open: func(t *testing.T, scope provider.Scope) provider.Provider {
				return open(t, e, scope, nil)
			},
			Kill: func(t *testing.T, vm provider.VM) {
				if err := e.api.ContainerKill(t.Context(), vm.ProviderID, "KILL"); err != nil {
					t.Fatal(err)
				}
			},
			Plant: func(t *testing.T, tags map[string]string) {
				c, err := e.api.ContainerCreate(t.Context(), &container.Config{Image: e.image, Labels: tags}, nil, nil, nil, "")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					_ = e.api.ContainerRemove(context.Background(), c.ID, container.RemoveOptions{Force: true}) // usually gone already
				})
			},
			Killed:   "exit code 137",
			Patience: time.Minute,
			BadArgs:  []map[string]any{{"privileged": true}, {"memory": "12q", "cpus": -1}, {"extra_hosts": []any{"nowhere"}}},
		}
	}})
}

func newSpec(t *testing.T, scope provider.Scope, args map[string]any) provider.Spec {
	t.Helper()
	id, err := fleet.NewID("knc", time.Now(), random{})
	if err != nil {
		t.Fatal(err)
	}
	return provider.Spec{
		ID: id, Hostname: string(id), Subnet: "a", Args: args,
		Tags:      scope.Tags(fleet.Instance{ID: id, Tenant: "default", Group: "web"}),
		Bootstrap: provider.Bootstrap{CACert: []byte("the ca"), Nonce: "the.nonce.jwt", AgentAddrs: []string{"10.0.0.1:8994"}},
	}
}

// random is the source of unique IDs.
type random struct{}

func (random) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(counter.Add(1))
	}
	return len(p), nil
}

// logs returns the first line of the container's output.
func logs(t *testing.T, e engine, id string) string {
	t.Helper()
	r, err := e.api.ContainerLogs(t.Context(), id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	header := make([]byte, 8) // stdcopy's header: the stream, and the length in the last four bytes
	if _, err := io.ReadFull(r, header); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, int(header[6])<<8|int(header[7]))
	if _, err := io.ReadFull(r, line); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(line))
}

func TestArgs(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	p := open(t, e, scope, map[string]any{"env": map[string]any{"COLOUR": "blue"}, "args_env": []any{"COLOUR"}})
	spec := newSpec(t, scope, map[string]any{
		"memory": "64m", "cpus": 0.5, "pids_limit": 64, "labels": map[string]any{"team": "ops"},
		"env": map[string]any{"COLOUR": "red"}, "extra_hosts": []any{"store:10.0.0.9"},
	})
	vm, err := p.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := logs(t, e, vm.ProviderID), fmt.Sprintf("the.nonce.jwt %s 65532 red <nil>", spec.ID); got != want {
		t.Errorf("the agent printed %q, want %q", got, want)
	}
	c, err := e.api.ContainerInspect(t.Context(), vm.ProviderID)
	if err != nil {
		t.Fatal(err)
	}
	h := c.HostConfig
	if h.Memory != 64<<20 || h.NanoCPUs != 500_000_000 || *h.PidsLimit != 64 || h.RestartPolicy.Name != "no" ||
		c.Config.Labels["team"] != "ops" || len(h.ExtraHosts) != 1 || c.Name != "/nstance-"+string(spec.ID) {
		t.Errorf("container %s: %+v, labels %v", c.Name, h.Resources, c.Config.Labels)
	}
}

// TestBuildAgentImage: an image is rebuilt only if the binary differs, and replaces the former
// one.
func TestBuildAgentImage(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	tag := "nstance-" + newCluster(t, e) + ":once"
	binary := filepath.Join(t.TempDir(), "agent")
	t.Cleanup(func() {
		if err := docker.RemoveImage(context.Background(), "", tag); err != nil {
			t.Error(err)
		}
	})
	var ids []string
	for _, content := range []string{"one", "one", "two"} {
		if err := os.WriteFile(binary, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := docker.BuildAgentImage(t.Context(), "", binary, tag); err != nil {
			t.Fatal(err)
		}
		i, err := e.api.ImageInspect(t.Context(), tag)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, i.ID)
	}
	if ids[0] != ids[1] || ids[1] == ids[2] {
		t.Errorf("IDs of one, one and two: %v", ids)
	}
	if _, err := e.api.ImageInspect(t.Context(), ids[0]); err == nil {
		t.Error("the former image still exists")
	}
}

// TestCreateOfUnstartedContainer: a server died after the engine had created the container; the
// next create starts it.
func TestCreateOfUnstartedContainer(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	p := open(t, e, scope, nil)
	spec := newSpec(t, scope, nil)
	refusal := errors.New("not the leader")
	calls := 0
	ctx := provider.WithGuard(t.Context(), func(context.Context) error {
		if calls++; calls > 1 {
			return refusal
		}
		return nil
	})
	if _, err := p.Create(ctx, spec); !errors.Is(err, refusal) {
		t.Fatalf("create: %v", err)
	}
	vm, err := provider.GetOne(t.Context(), p, provider.Ref{ID: spec.ID})
	if err != nil || vm.State != provider.StatePending {
		t.Fatalf("the created container: %s, %v", vm.State, err)
	}
	again, err := p.Create(t.Context(), spec)
	if err != nil || again.ProviderID != vm.ProviderID || again.State != provider.StateRunning {
		t.Fatalf("create again: %+v, %v", again, err)
	}
	if got := logs(t, e, vm.ProviderID); !strings.HasSuffix(got, "<nil>") {
		t.Errorf("the agent printed %q", got)
	}
}

// TestRefusals: what the engine can't provide is a definite error, and nothing is left behind.
func TestRefusals(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	p := open(t, e, scope, map[string]any{"images": []any{"nstance-no-such-image"}, "networks": []any{"nstance-no-such-network"}})
	for name, c := range map[string]struct {
		args map[string]any
		want string
	}{
		"no such image":     {map[string]any{"image": "nstance-no-such-image:latest"}, "build or load the image nstance-no-such-image:latest"},
		"no such network":   {map[string]any{"network": "nstance-no-such-network"}, "nstance-no-such-network"},
		"too little memory": {map[string]any{"memory": "4k"}, "inimum memory"},
		"too many cpus":     {map[string]any{"cpus": 4096}, "CPUs"},
	} {
		_, err := p.Create(t.Context(), newSpec(t, scope, c.args))
		if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want ErrInvalid with %q", name, err, c.want)
		}
	}
	if vms, err := p.List(t.Context()); err != nil || len(vms) != 0 {
		t.Errorf("refused creates left %+v, %v", vms, err)
	}
}

// TestNameTaken: a create fails if another container has the instance's name.
func TestNameTaken(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	spec := newSpec(t, scope, nil)
	c, err := e.api.ContainerCreate(t.Context(), &container.Config{Image: e.image}, nil, nil, nil, "nstance-"+string(spec.ID))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.api.ContainerRemove(context.Background(), c.ID, container.RemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	}()
	if _, err := open(t, e, scope, nil).Create(t.Context(), spec); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("create with the name of a foreign container: %v", err)
	}
}
