package stack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/planetest"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

// TestKeepNodes: a process that a server of the stack creates has a Node until the server has
// removed it.
func TestKeepNodes(t *testing.T) {
	plane := shared.Plane(t)
	cfg := sleeping(t)
	cfg.Kubeconfig = filepath.Join(cfg.Temp, "kubeconfig")
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

	vm := createAgent(t, cfg, one)
	node := &corev1.Node{}
	get := func(ctx context.Context) error {
		return plane.Client.Get(ctx, client.ObjectKey{Name: string(vm.ID)}, node)
	}
	planetest.Eventually(t, time.Minute, "the node", get)
	if want := "process:///" + vm.ProviderID; node.Spec.ProviderID != want || node.Labels["nstance.dev/shard"] != "dev-2" {
		t.Errorf("provider id %q, want %q; labels %v", node.Spec.ProviderID, want, node.Labels)
	}
	planetest.Eventually(t, time.Minute, "the end of the machine", func(ctx context.Context) error {
		_, err := endShard(ctx, cfg, "dev-2")
		return err
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
