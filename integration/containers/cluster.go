//go:build integration

package containers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/k3s"
	"github.com/testcontainers/testcontainers-go/wait"
)

// Kubernetes is a whole cluster in a container.
type Kubernetes struct {
	*Container
	Kubeconfig []byte // an administrator's, for this machine
	made       *k3s.K3sContainer
}

// clusterWithin bounds the time until a cluster's node is ready.
const clusterWithin = 4 * time.Minute

// Kubernetes starts a cluster: the image of K3S_IMAGE, or the stand-in. Its nodes pull from
// registry, which is host:port as seen from this machine, through mirror.
func (w *World) Kubernetes(name string, at At, registry, mirror string) *Kubernetes {
	w.Helper()
	image, runtime := w.StandIn("k3s"), w.Privileged()
	registries := fmt.Sprintf("mirrors:\n  %q:\n    endpoint: [%q]\n", registry, mirror)
	options := append(w.options(name, at),
		testcontainers.WithHostConfigModifier(func(host *container.HostConfig) { host.Runtime = runtime }),
		testcontainers.WithFiles(testcontainers.ContainerFile{
			Reader: strings.NewReader(registries), ContainerFilePath: "/etc/rancher/k3s/registries.yaml", FileMode: 0o644,
		}),
		testcontainers.WithWaitStrategyAndDeadline(clusterWithin, wait.ForLog(".*Node controller sync successful.*").AsRegexp()))
	made, err := k3s.Run(w.Context(), image, options...)
	k := &Kubernetes{Container: w.adopt(made, err, name, at), made: made}
	k.Kubeconfig, err = made.GetKubeConfig(w.Context())
	w.Must(err)
	return k
}

// Load loads images of the engine into the cluster's own node.
func (k *Kubernetes) Load(ctx context.Context, images ...string) error {
	return k.wrap("load images into", k.made.LoadImages(ctx, images...))
}
