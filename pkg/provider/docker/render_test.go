package docker_test

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
)

// createRequest is the body of a create call.
type createRequest struct {
	container.Config
	HostConfig container.HostConfig
}

// createOn creates an instance on a fake engine that accepts all calls, and returns the create
// request.
func createOn(t *testing.T, options map[string]any, spec provider.Spec) (createRequest, *fakeEngine) {
	t.Helper()
	host, w := serveFake(t, map[string]response{
		"POST create": {201, `{"Id":"a"}`}, "GET json": created(t, spec), "PUT archive": {200, ""}, "POST start": {204, ""},
	})
	all := map[string]any{"host": host, "image": "agent:1"}
	maps.Copy(all, options)
	p := openOptions(t, all)
	if _, err := p.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	var a createRequest
	if err := json.Unmarshal([]byte(w.bodies["POST create"]), &a); err != nil {
		t.Fatal(err)
	}
	return a, w
}

func openOptions(t testing.TB, options map[string]any) *docker.Provider {
	t.Helper()
	cfg, err := docker.Default(testScope(), slog.New(slog.DiscardHandler)).WithOptions(options)
	if err != nil {
		t.Fatal(err)
	}
	p, err := docker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// TestHardened: an agent's container has no more rights than it needs, unless the options, or
// args where that is harmless, grant them.
func TestHardened(t *testing.T) {
	a, w := createOn(t, nil, newSpec(t, testScope(), nil))
	h := a.HostConfig
	if a.User != "65532:65532" || !slices.Equal(h.CapDrop, []string{"ALL"}) || len(h.CapAdd) > 0 || h.Privileged || !h.ReadonlyRootfs ||
		!slices.Equal(h.SecurityOpt, []string{"no-new-privileges"}) || h.PidsLimit == nil || *h.PidsLimit != 512 || h.Init != nil ||
		h.RestartPolicy.Name != "no" || len(h.Binds) > 0 || h.Runtime != "" {
		t.Errorf("by default: user %s, %+v", a.User, h)
	}
	if len(h.Mounts) != 1 || h.Mounts[0].Type != "volume" || h.Mounts[0].Source != "" || h.Mounts[0].Target != "/opt/nstance-agent" {
		t.Errorf("mounts %+v", h.Mounts)
	}
	if files := unpack(t, w.bodies["PUT archive"]); !maps.Equal(files, map[string]string{
		"./": "d755 65532", "./identity/": "d700 65532", "./keys/": "d700 65532", "./recv/": "d700 65532",
		"./identity/ca.crt": "600 65532 the ca", "./identity/nonce.jwt": "600 65532 the.nonce.jwt",
	}) {
		t.Errorf("files %v", files)
	}
	a, _ = createOn(t, map[string]any{"writable_root": true, "networks": []any{"mine"}}, newSpec(t, testScope(), map[string]any{
		"pids_limit": 7, "log_driver": "local", "log_options": map[string]any{"max-size": "1m"}, "network": "mine",
	}))
	h = a.HostConfig
	if h.ReadonlyRootfs || *h.PidsLimit != 7 || h.LogConfig.Type != "local" || h.LogConfig.Config["max-size"] != "1m" ||
		h.NetworkMode != "mine" || !slices.Equal(h.CapDrop, []string{"ALL"}) {
		t.Errorf("with args: %+v", h)
	}
	a, _ = createOn(t, map[string]any{"network": "host"}, newSpec(t, testScope(), map[string]any{"network": "host"}))
	if a.HostConfig.NetworkMode != "host" {
		t.Errorf("the options' own network in the args: %s", a.HostConfig.NetworkMode)
	}
}

// TestNode: a node's container is configured by the server's options, and has its userdata.
func TestNode(t *testing.T) {
	options := map[string]any{"node": map[string]any{
		"image": "node:1", "runtime": "plain", "privileged": true, "volumes": []any{"/var/lib/containerd"}, "tmpfs": []any{"/run"},
		"binds": []any{"/lib/modules:/lib/modules:ro"},
	}}
	spec := newSpec(t, testScope(), map[string]any{"node": true, "memory": "1g"})
	spec.Userdata = []byte("#!/bin/sh\nexit 0\n")
	a, w := createOn(t, options, spec)
	h := a.HostConfig
	if a.Image != "node:1" || a.User != "0:0" || a.Entrypoint != nil || a.Cmd != nil || a.Hostname != string(spec.ID) || a.StopSignal != "" ||
		!h.Privileged || h.Runtime != "plain" || h.ReadonlyRootfs || h.PidsLimit != nil || h.Memory != 1<<30 || len(h.CapDrop) > 0 ||
		len(h.Mounts) != 1 || h.Mounts[0].Type != "volume" || h.Mounts[0].Target != "/var/lib/containerd" ||
		!maps.Equal(h.Tmpfs, map[string]string{"/run": ""}) || !slices.Equal(h.Binds, []string{"/lib/modules:/lib/modules:ro"}) {
		t.Errorf("image %s, user %s, %+v", a.Image, a.User, h)
	}
	if !slices.Contains(a.Env, "NSTANCE_IDENTITY_DIR=/opt/nstance-agent/identity") {
		t.Errorf("environment %v", a.Env)
	}
	const root = "opt/nstance-agent/"
	if files := unpack(t, w.bodies["PUT archive"]); !maps.Equal(files, map[string]string{
		root: "d755 0", root + "identity/": "d700 0", root + "keys/": "d700 0", root + "recv/": "d700 0",
		root + "identity/ca.crt": "600 0 the ca", root + "identity/nonce.jwt": "600 0 the.nonce.jwt",
		root + "userdata": "700 0 #!/bin/sh\nexit 0\n",
	}) {
		t.Errorf("files %v", files)
	}
	delete(options["node"].(map[string]any), "image")
	options["images"] = []any{"node"}
	a, _ = createOn(t, options, newSpec(t, testScope(), map[string]any{"node": true, "image": "node:2", "pids_limit": 9}))
	if a.Image != "node:2" || *a.HostConfig.PidsLimit != 9 {
		t.Errorf("with args: image %s, %+v", a.Image, a.HostConfig.Resources)
	}
	if a, _ = createOn(t, options, newSpec(t, testScope(), nil)); a.HostConfig.Privileged || a.Image != "agent:1" {
		t.Errorf("a group without args.node: %+v", a.HostConfig)
	}
}

// TestNodeOptions: the error names the path of an invalid mount, and a group whose node would
// have no image is refused.
func TestNodeOptions(t *testing.T) {
	for want, node := range map[string]map[string]any{
		`options.node.volumes[0]: "var" is not valid: want an absolute path`:      {"volumes": []any{"var"}},
		`options.node.volumes[0]: "/" is not valid`:                               {"volumes": []any{"/"}},
		`options.node.tmpfs[1]: "/a/../run" is not valid`:                         {"tmpfs": []any{"/run", "/a/../run"}},
		`options.node.tmpfs[0]: duplicate "/run"`:                                 {"volumes": []any{"/run"}, "tmpfs": []any{"/run"}},
		`options.node.tmpfs[0]: "/opt" is not valid: it would hide the agent's`:   {"tmpfs": []any{"/opt"}},
		`options.node.binds[0]: "/a" is not valid: want host:container`:           {"binds": []any{"/a"}},
		`options.node.binds[0]: "name:/a" is not valid`:                           {"binds": []any{"name:/a"}},
		`options.node.binds[0]: "/a:/b:exec" is not valid`:                        {"binds": []any{"/a:/b:exec"}},
		`options.node.privileged: got a string: want true or false`:               {"privileged": "yes"},
		`options.node.devices: no such field (have: binds, image, privileged, ru`: {"devices": []any{}},
	} {
		cfg, err := docker.Default(testScope(), slog.New(slog.DiscardHandler)).WithOptions(map[string]any{"image": "i", "node": node})
		if err == nil {
			err = cfg.CheckOptions()
		}
		if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", node, err, want)
		}
	}
	cfg, err := docker.Default(testScope(), slog.New(slog.DiscardHandler)).WithOptions(map[string]any{"image": "i", "node": map[string]any{}})
	if err != nil || cfg.CheckOptions() != nil {
		t.Fatal(err, cfg.CheckOptions())
	}
	err = cfg.CheckArgs(provider.Spec{Args: map[string]any{"node": true}})
	if err == nil || !strings.Contains(err.Error(), "args.image: required: options.node names no image") {
		t.Errorf("a node without an image: %v", err)
	}
}

// unpack returns, for each entry of an archive, its mode, owner and contents.
func unpack(t *testing.T, archive string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for r := tar.NewReader(strings.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = describe(h, content)
	}
}

func describe(h *tar.Header, content []byte) string {
	if h.Typeflag == tar.TypeDir {
		return fmt.Sprintf("d%o %d", h.Mode, h.Uid)
	}
	return fmt.Sprintf("%o %d %s", h.Mode, h.Uid, content)
}
