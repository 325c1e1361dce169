//go:build !roles

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/garbage"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/retry"
)

// kubeSettle is the time after which an operator's memory is measured.
const kubeSettle = 15 * time.Second

// kubeSettings are those of an operator in a process of its own.
type kubeSettings struct {
	Kubeconfig string `json:"kubeconfig"`
	Instances  int    `json:"instances"`
}

// operatorMemory measures the memory of an operator after it has reconciled that many instances.
func operatorMemory(b *bench, h *harness, plane *planetest.Plane) ([]figure, error) {
	kubeconfig := filepath.Join(h.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, plane.Kubeconfig(), 0o600); err != nil {
		return nil, err
	}
	began := time.Now()
	c, err := b.start(h.ctx, roleOperator, "operator", kubeSettings{kubeconfig, kubeInstances})
	if err != nil {
		return nil, err
	}
	defer c.stop(30 * time.Second)
	ns, err := c.await(h.ctx, "namespace", began, time.Minute)
	if err != nil {
		return nil, err
	}
	(&kubeWorld{harness: h, plane: plane, ns: ns.Text}).machines(kubeInstances)
	if err := retry.Wait(h.ctx, kubeSettle); err != nil {
		return nil, err
	}
	used, err := c.rss(h.ctx)
	return []figure{newFigure("operator_rss_1000_instances", used, "MiB", kubeInstances).atMost(120).
		noted("the two shards that it works with are in the same process")}, err
}

// playOperator runs a whole operator beside its shards.
func playOperator(ctx context.Context, s *stage) error {
	var settings kubeSettings
	if err := s.read(&settings); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", settings.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read %s: %w", settings.Kubeconfig, err)
	}
	scheme, err := planetest.Scheme()
	if err != nil {
		return err
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	return within(ctx, func(h *harness) error {
		w := newKubeWorld(h, &planetest.Plane{Config: config, Client: api}) //nolint:contextcheck // the harness has it
		for _, id := range []string{kubeOne, kubeTwo} {
			w.shards.Shard(id).AddGroup("web", int32(settings.Instances/2), "knd")
		}
		w.operate()            //nolint:contextcheck // the same
		go garbage.Govern(ctx) // as in the command
		s.tell(event{Kind: "namespace", At: time.Now(), Text: w.ns})
		<-ctx.Done()
		return nil
	})
}
