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

// TestNothingIsLeft: what a container wrote goes with it, however it ended, and deletes
// that come at once all succeed.
func TestNothingIsLeft(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	p := open(t, e, scope, nil)
	second := open(t, e, scope, nil) // the shard's other server
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
		t.Errorf("a paused container: %+v, %v; it may go on any time", paused, err)
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
		t.Errorf("left: %+v, %v", vms, err)
	}
	for _, name := range volumes {
		if _, err := e.api.VolumeInspect(t.Context(), name); !errdefs.IsNotFound(err) {
			t.Errorf("volume %s is left: %v", name, err)
		}
	}
}

// TestReload: a new program gets into containers whose root can be written to, and those
// where it can't are named.
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
	sealed, err := open(t, e, scope, nil).Create(t.Context(), newSpec(t, scope, nil))
	if err != nil {
		t.Fatal(err)
	}
	err = writable.Reload(t.Context(), program)
	if err == nil || !strings.Contains(err.Error(), string(sealed.ID)+": it was created without options.writable_root") {
		t.Errorf("with a read-only one: %v", err)
	}
}

// TestStrangers: containers of others, with labels much like ours, are neither seen nor
// told of, and a Delete that names one leaves it.
func TestStrangers(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	p := open(t, e, scope, nil)
	own, err := p.Create(t.Context(), newSpec(t, scope, nil))
	if err != nil {
		t.Fatal(err)
	}
	var strangers []string
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
		strangers = append(strangers, c.ID)
	}
	if vms, err := p.List(t.Context()); err != nil || len(vms) != 1 || vms[0].ProviderID != own.ProviderID {
		t.Errorf("list: %+v, %v", vms, err)
	}
	for _, id := range strangers {
		for _, ref := range []provider.Ref{{ProviderID: id}, {ID: own.ID, ProviderID: id}} {
			if err := provider.DeleteOne(t.Context(), p, ref); err != nil {
				t.Errorf("delete %+v: %v", ref, err)
			}
			if vm, err := provider.GetOne(t.Context(), p, ref); !errors.Is(err, provider.ErrNotFound) {
				t.Errorf("get %+v: %+v, %v", ref, vm, err)
			}
		}
		if _, err := e.api.ContainerInspect(t.Context(), id); err != nil {
			t.Errorf("a stranger is gone: %v", err)
		}
	}
}

// TestOutOfMemory: a container that was killed for its memory says so, through a look
// and through the events.
func TestOutOfMemory(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	p := open(t, e, scope, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	spec := newSpec(t, scope, map[string]any{"memory": "24m", "env": map[string]any{"EAT": "1"}})
	told := make(chan string, 1)
	go func() {
		_ = p.Watch(ctx, func(event provider.Event) {
			if event.VM.ID == spec.ID && event.VM.State == provider.StateStopped {
				select {
				case told <- event.VM.Reason:
				default: // told already
				}
			}
		})
	}()
	vm, err := p.Create(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-told: // from the events or, if the watch came late, from a list, which knows the code alone
	case <-ctx.Done():
		t.Fatal("no word of the death")
	}
	got, err := provider.GetOne(ctx, p, vm.Ref())
	if err != nil || got.Reason != "exit code 137, out of memory" {
		t.Errorf("%q, %v", got.Reason, err)
	}
}

// TestNodeRuns: a node's container is root's, with its own program, and has its userdata.
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
		t.Errorf("the node says %q, want %q", got, want)
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
