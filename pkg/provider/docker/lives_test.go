package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
)

// TestDeleteRemovesAllData: a container's volumes are removed with it, however it ended, and
// concurrent deletes all succeed.
func TestDeleteRemovesAllData(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	p := open(t, e, scope, nil)
	second := open(t, e, scope, nil) // another server of the shard
	endings := []func(id string) error{
		func(string) error { return nil },
		func(id string) error { return e.api.ContainerPause(t.Context(), id) },
		func(id string) error { return e.api.ContainerKill(t.Context(), id, "KILL") },
		func(id string) error { return e.api.ContainerStop(t.Context(), id, container.StopOptions{}) },
	}
	var refs []provider.Ref
	var volumes []string
	for _, end := range endings {
		vm, err := p.Create(t.Context(), newSpec(t, scope, nil))
		if err != nil {
			t.Fatal(err)
		}
		c, err := e.api.ContainerInspect(t.Context(), vm.ProviderID)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range c.Mounts {
			volumes = append(volumes, m.Name)
		}
		if err := end(vm.ProviderID); err != nil {
			t.Fatal(err)
		}
		refs = append(refs, vm.Ref())
	}
	if len(volumes) != len(endings) {
		t.Fatalf("volumes %v, want one for each container", volumes)
	}
	if paused, err := provider.GetOne(t.Context(), p, refs[1]); err != nil || paused.State != provider.StateRunning {
		t.Errorf("a paused container: %+v, %v; want it running, since it may resume", paused, err)
	}
	var deletes sync.WaitGroup
	for _, server := range []*docker.Provider{p, second, p} {
		deletes.Go(func() {
			for n, err := range server.Delete(t.Context(), refs) {
				if err != nil {
					t.Errorf("delete %d: %v", n, err)
				}
			}
		})
	}
	deletes.Wait()
	if vms, err := p.List(t.Context()); err != nil || len(vms) != 0 {
		t.Errorf("after the deletes: %+v, %v", vms, err)
	}
	for _, name := range volumes {
		if _, err := e.api.VolumeInspect(t.Context(), name); !errdefs.IsNotFound(err) {
			t.Errorf("volume %s still exists: %v", name, err)
		}
	}
}

// TestReload: a new program is copied into containers with a writable root, and the error names
// the others.
func TestReload(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	writable := open(t, e, scope, map[string]any{"writable_root": true})
	vm, err := writable.Create(t.Context(), newSpec(t, scope, nil))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(program, []byte("new"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writable.Reload(t.Context(), program); err != nil {
		t.Error(err)
	}
	body, _, err := e.api.CopyFromContainer(t.Context(), vm.ProviderID, "/usr/local/bin/nstance-agent")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	r := tar.NewReader(body)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "new" {
		t.Errorf("the program is %.20q, %v", got, err)
	}
	readOnly, err := open(t, e, scope, nil).Create(t.Context(), newSpec(t, scope, nil))
	if err != nil {
		t.Fatal(err)
	}
	err = writable.Reload(t.Context(), program)
	if err == nil || !strings.Contains(err.Error(), string(readOnly.ID)+": container was created without options.writable_root") {
		t.Errorf("with a read-only one: %v", err)
	}
}

// TestForeignContainers: other containers with similar labels are neither listed nor returned,
// and a Delete by their provider ID does not remove them.
func TestForeignContainers(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	p := open(t, e, scope, nil)
	own, err := p.Create(t.Context(), newSpec(t, scope, nil))
	if err != nil {
		t.Fatal(err)
	}
	var foreign []string
	for key, value := range map[string]string{
		provider.TagManaged: "yes", provider.TagClusterID: scope.ClusterID + "-2", provider.TagShard: "s2", "com.example.role": "",
	} {
		labels := maps.Clone(own.Tags)
		labels[key] = value
		if key == "com.example.role" {
			labels = map[string]string{key: value}
		}
		c, err := e.api.ContainerCreate(t.Context(), &container.Config{Image: e.image, Labels: labels}, nil, nil, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.api.ContainerRemove(context.Background(), c.ID, container.RemoveOptions{Force: true}); err != nil {
				t.Error(err)
			}
		})
		foreign = append(foreign, c.ID)
	}
	if vms, err := p.List(t.Context()); err != nil || len(vms) != 1 || vms[0].ProviderID != own.ProviderID {
		t.Errorf("list: %+v, %v", vms, err)
	}
	for _, id := range foreign {
		for _, ref := range []provider.Ref{{ProviderID: id}, {ID: own.ID, ProviderID: id}} {
			if err := provider.DeleteOne(t.Context(), p, ref); err != nil {
				t.Errorf("delete %+v: %v", ref, err)
			}
			if vm, err := provider.GetOne(t.Context(), p, ref); !errors.Is(err, provider.ErrNotFound) {
				t.Errorf("get %+v: %+v, %v", ref, vm, err)
			}
		}
		if _, err := e.api.ContainerInspect(t.Context(), id); err != nil {
			t.Errorf("a foreign container is gone: %v", err)
		}
	}
}

// TestEngineScope: servers of the same cluster and shard with different engine scopes don't see each
// other's containers. A server whose scope was changed gets an error, and not "no such container".
func TestEngineScope(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	var opened []*docker.Provider
	var vms []provider.VM
	for _, name := range []string{"", "/home/a/temp", "/home/b/temp"} {
		p := open(t, e, scope, map[string]any{"engine_scope": name})
		vm, err := p.Create(t.Context(), newSpec(t, scope, nil))
		if err != nil {
			t.Fatal(err)
		}
		opened, vms = append(opened, p), append(vms, vm)
	}
	for n, p := range opened {
		if list, err := p.List(t.Context()); err != nil || len(list) != 1 || list[0].ProviderID != vms[n].ProviderID {
			t.Errorf("%d lists %+v, %v", n, list, err)
		}
		other := vms[(n+1)%len(vms)]
		for _, ref := range []provider.Ref{other.Ref(), {ID: other.ID}} {
			want := "has the label nstance:engine-scope="
			vm, err := provider.GetOne(t.Context(), p, ref)
			if err == nil || errors.Is(err, provider.ErrNotFound) || !strings.Contains(err.Error(), want) {
				t.Errorf("%d gets %+v: %+v, %v; want an error with %q", n, ref, vm, err, want)
			}
			if err := provider.DeleteOne(t.Context(), p, ref); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%d deletes %+v: %v, want %q", n, ref, err, want)
			}
		}
	}
	for n, p := range opened {
		if vm, err := provider.GetOne(t.Context(), p, vms[n].Ref()); err != nil || !vm.State.Exists() {
			t.Errorf("%d: %+v, %v, want it untouched", n, vm, err)
		}
	}
}

// TestOutOfMemory: the reason of a container that was killed because of its memory says so.
func TestOutOfMemory(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	p := open(t, e, scope, map[string]any{"args_env": []any{"EAT"}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	spec := newSpec(t, scope, map[string]any{"memory": "24m", "env": map[string]any{"EAT": "1"}})
	reasons := make(chan string, 1)
	go func() {
		_ = p.Watch(ctx, func(event provider.Event) {
			if event.VM.ID == spec.ID && event.VM.State == provider.StateStopped {
				select {
				case reasons <- event.VM.Reason:
				default: // reported already
				}
			}
		})
	}()
	vm, err := p.Create(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-reasons: // from an event or, if the watch started late, from a list, which has only the exit code
	case <-ctx.Done():
		t.Fatal("no event of the death")
	}
	got, err := provider.GetOne(ctx, p, vm.Ref())
	if err != nil || got.Reason != "exit code 137, out of memory" {
		t.Errorf("%q, %v", got.Reason, err)
	}
}

// TestNodeRuns: a node's container runs as root, with the image's own program, and has its
// userdata.
func TestNodeRuns(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	p := open(t, e, scope, map[string]any{"node": map[string]any{
		"image": e.image, "volumes": []any{"/var/lib/state"}, "tmpfs": []any{"/run"},
	}})
	spec := newSpec(t, scope, map[string]any{"node": true})
	spec.Userdata = []byte("#!/bin/sh\n\x00\xff")
	vm, err := p.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := logs(t, e, vm.ProviderID), fmt.Sprintf("the.nonce.jwt %s 0  <nil>", spec.ID); got != want {
		t.Errorf("the node printed %q, want %q", got, want)
	}
	body, _, err := e.api.CopyFromContainer(t.Context(), vm.ProviderID, "/opt/nstance-agent/userdata")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	r := tar.NewReader(body)
	h, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil || h.Mode&0o777 != 0o700 || h.Uid != 0 || !bytes.Equal(content, spec.Userdata) {
		t.Errorf("userdata %q, mode %o of %d, %v", content, h.Mode, h.Uid, err)
	}
}
