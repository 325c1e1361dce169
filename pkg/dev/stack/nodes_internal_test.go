package stack

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/provider"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

// TestKeepNodes: a process that a server of the stack creates has a Node until the server has
// removed it.
func TestKeepNodes(t *testing.T) {
	plane := shared.Plane(t)
	temp := t.TempDir()
	cfg := Config{
		Bin: filepath.Join(temp, "bin"), Temp: temp, Provider: "process", Kubeconfig: filepath.Join(temp, "kubeconfig"),
		Out: io.Discard, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if err := os.Mkdir(cfg.Bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cfg.agentBinary(), []byte("#!/bin/sh\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cfg.Kubeconfig, plane.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var kept sync.WaitGroup
	kept.Go(func() { s.runNodes(ctx) })
	defer kept.Wait()
	defer cancel()

	server, err := openProvider(cfg, "dev-2")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	const id = "knd01m7y23z9me5h9rh8r505a17w9"
	vm, err := server.Create(t.Context(), provider.Spec{
		ID: id, Hostname: id, Tags: scopeOf("dev-2").Tags(fleet.Instance{ID: id, Tenant: "default", Group: "web"}),
		Bootstrap: provider.Bootstrap{
			CACert: []byte("ca"), Nonce: "nonce", ReportInterval: time.Minute,
			RegistrationAddrs: []string{"127.0.0.1:1"}, AgentAddrs: []string{"127.0.0.1:1"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{}
	get := func(ctx context.Context) error { return plane.Client.Get(ctx, client.ObjectKey{Name: id}, node) }
	planetest.Eventually(t, time.Minute, "the node", get)
	if want := "process:///" + vm.ProviderID; node.Spec.ProviderID != want || node.Labels["nstance.dev/shard"] != "dev-2" {
		t.Errorf("provider id %q, want %q; labels %v", node.Spec.ProviderID, want, node.Labels)
	}
	planetest.Eventually(t, time.Minute, "the end of the machine", func(ctx context.Context) error {
		return removeShard(ctx, cfg, "dev-2")
	})
	planetest.Eventually(t, time.Minute, "the end of the node", func(ctx context.Context) error {
		switch err := get(ctx); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		default:
			return errors.New("it is there")
		}
	})
}
