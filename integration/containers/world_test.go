//go:build integration

package containers_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/nstance/nstance/integration/containers"
	"github.com/nstance/nstance/pkg/provider"
)

var engine containers.Engine

// TestNothingIsLeft: what a story creates, what the docker provider creates for its cluster, and
// leftovers of an earlier run are gone when the test ends, running or not; other stories are not
// touched.
func TestNothingIsLeft(t *testing.T) {
	var before, ours []string
	var api *client.Client
	var image string
	create := func(w *containers.World, labels map[string]string) string {
		made, err := api.ContainerCreate(context.Background(), client.ContainerCreateOptions{
			Config: &container.Config{Image: image, Labels: labels, Cmd: []string{"--version"}},
		})
		w.Must(err)
		return made.ID
	}
	other := ""
	t.Run("an earlier run", func(t *testing.T) {
		w := engine.Begin(t, "harness-other")
		api, image = w.API, w.StandIn("minio")
		other = create(w, map[string]string{containers.Label: "harness-else"})
		before = append(before, create(w, map[string]string{containers.Label: "harness"}))
	})
	if t.Failed() || api == nil {
		t.SkipNow() // the reason is logged above
	}
	t.Cleanup(func() {
		if _, err := api.ContainerRemove(context.Background(), other, client.ContainerRemoveOptions{}); err != nil {
			t.Error("another story's container: ", err)
		}
	})
	t.Run("a run", func(t *testing.T) {
		w := engine.Begin(t, "harness")
		gone(t, api, before)
		at := containers.At{Network: w.Network("net"), Nth: 2}
		store := w.MinIO("store", at, containers.Data{})
		w.Must(store.Pause(t.Context()))
		ours = append(ours, store.ID, create(w, map[string]string{provider.TagClusterID: w.Cluster}))
	})
	gone(t, api, ours)
	label := client.Filters{}.Add("label", containers.Label+"=harness")
	networks, err := api.NetworkList(t.Context(), client.NetworkListOptions{Filters: label})
	if err != nil || len(networks.Items) > 0 {
		t.Errorf("networks are left: %+v (%v)", networks.Items, err)
	}
}

func gone(t *testing.T, api *client.Client, ids []string) {
	t.Helper()
	for _, id := range ids {
		if _, err := api.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{}); !errdefs.IsNotFound(err) {
			t.Errorf("container %.12s: %v, want none", id, err)
		}
	}
}

// TestRecorder: a server's changes at the engine are recorded, its reads are not, and both reach
// the engine.
func TestRecorder(t *testing.T) {
	w := engine.Begin(t, "recorder")
	var recorder containers.Recorder
	api, err := client.New(client.WithHost("unix://" + w.Socket(&recorder, "one")))
	w.Must(err)
	if _, err := api.ContainerList(t.Context(), client.ContainerListOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = api.ContainerKill(t.Context(), "nstance-none", client.ContainerKillOptions{Signal: "KILL"})
	if !errdefs.IsNotFound(err) {
		t.Errorf("the engine answers %v", err)
	}
	calls := recorder.Calls()
	if len(calls) != 1 || calls[0].Server != "one" || calls[0].Method != http.MethodPost || calls[0].Path != "/containers/nstance-none/kill" {
		t.Errorf("noted %+v", calls)
	}
}

// TestBusy: a story can't run twice at the same time.
func TestBusy(t *testing.T) {
	w := engine.Begin(t, "busy")
	if err := w.Held("busy"); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("the story has no holder: %v", err)
	}
	if err := w.Held("idle"); err != nil {
		t.Error(err)
	}
}
