package stack

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/dev/kube"
)

// This file is the optional part of the stack with Kubernetes: an API server whose objects are
// files, Cluster API, and the operator. It starts after the shards, which continue if it fails.

const (
	// kubeTimeout bounds the time from built programs to ready nodes.
	kubeTimeout = 3 * time.Minute
)

// The values of Report.Kubernetes beside errors.
const (
	kubeStarting = "starting"
	kubeUp       = "up"
)

// startKubernetes starts to build its programs in the background.
func (s *Stack) startKubernetes(ctx context.Context) (built <-chan error) {
	done := make(chan error, 1)
	if s.cfg.Kubernetes {
		s.mu.Lock()
		s.kubernetes = kubeStarting
		s.mu.Unlock()
		go func() { done <- s.buildPlane(ctx) }()
	}
	return done
}

// runKubernetes starts it after the shards, and reports the result. An error does not affect the
// shards.
func (s *Stack) runKubernetes(ctx context.Context, built <-chan error) error {
	if !s.cfg.Kubernetes {
		return nil
	}
	err := s.bringUpKubernetes(ctx, built)
	said := kubeUp
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		said = err.Error()
		s.cfg.Logger.Error("Kubernetes did not come up; the shards go on", slog.Any("error", err))
	default:
		fmt.Fprintln(s.cfg.Out, s.kubeSummary())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kubernetes = said
	return err
}

func (s *Stack) kubeSummary() string {
	where := "the cluster of " + s.cfg.Kubeconfig
	if s.cfg.ownCluster() {
		where = fmt.Sprintf("https://%s, its objects as files in %s", s.cfg.kubeAddr(), filepath.Join(s.cfg.Temp, "dev-k8s"))
	}
	return fmt.Sprintf(`
Kubernetes is up: %[1]s.
Try:
  . %[2]s && %[3]s -n %[4]s get cluster,machinepool,machines
  %[3]s -n %[4]s scale machinepool web --replicas=5
`, where, s.envFile(), relativePath(s.cfg.kubectl()), kube.Namespace)
}

// ownCluster reports whether the stack has an API server of its own.
func (c Config) ownCluster() bool { return c.Kubernetes && c.Kubeconfig == c.devKubeconfig() }

func (c Config) devKubeconfig() string { return filepath.Join(c.Temp, "operator", "kubeconfig") }

// kubeSpecs are the components of Kubernetes in order of start.
func kubeSpecs(cfg Config) []Spec {
	if !cfg.Kubernetes {
		return nil
	}
	operator := Spec{
		Name: "operator", Path: filepath.Join(cfg.Bin, "nstance-operator"), Health: "http://" + cfg.operatorHealth() + "/readyz",
		Args: []string{
			"--config", filepath.Join(cfg.Temp, "operator", "config.yaml"), "--namespace", kube.Namespace,
			"--health-probe-bind-address", cfg.operatorHealth(),
		},
		Env: []string{"KUBECONFIG=" + cfg.Kubeconfig},
	}
	if !cfg.ownCluster() {
		return []Spec{operator}
	}
	return []Spec{
		{
			Name: "k8s", Path: filepath.Join(cfg.Bin, "dev-k8s"), Health: "https://" + cfg.kubeAddr() + "/readyz",
			Args: []string{
				"--addr", cfg.kubeAddr(), "--root", filepath.Join(cfg.Temp, "dev-k8s"), "--kubeconfig", cfg.Kubeconfig,
				"--logs", filepath.Join(cfg.Temp, "logs"), "--plane", cfg.plane(),
			},
		},
		{
			Name: "capi", Path: filepath.Join(cfg.plane(), "capi-core"), Health: "http://" + cfg.coreHealth() + "/readyz",
			Args: []string{
				"--kubeconfig", cfg.Kubeconfig, "--health-addr", cfg.coreHealth(), "--diagnostics-address=0", "--insecure-diagnostics=true",
				fmt.Sprintf("--webhook-port=%d", cfg.webhookPort()), "--webhook-cert-dir", cfg.webhookCertificates(),
			},
		},
		operator,
	}
}

func (c Config) webhookCertificates() string { return filepath.Join(c.Temp, "operator", "webhooks") }

// bringUpKubernetes starts everything in order, and returns when there is a ready node for each
// instance. built receives the result of building the programs.
func (s *Stack) bringUpKubernetes(ctx context.Context, built <-chan error) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-built:
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, kubeTimeout)
	defer cancel()
	if err := s.writeOperatorConfig(); err != nil {
		return err
	}
	later := s.components[s.shardCount:]
	if s.cfg.ownCluster() { // the API server comes first
		if err := s.startAll(ctx, later[:1]); err != nil {
			return err
		}
		later = later[1:]
	}
	if err := s.install(ctx); err != nil {
		return err
	}
	if err := s.startAll(ctx, later); err != nil {
		return err
	}
	return s.waitNodes(ctx)
}

// startAll starts components one by one, each when the one before is healthy.
func (s *Stack) startAll(ctx context.Context, components []*component) error {
	for _, c := range components {
		if err := c.start(ctx); err != nil {
			return err
		}
		if err := s.waitHealthy(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stack) install(ctx context.Context) error {
	ca, err := os.ReadFile(s.cfg.caFile())
	if err != nil {
		return err
	}
	c := kube.Config{
		Kubeconfig: s.cfg.Kubeconfig, Manifests: filepath.Join(s.cfg.Repository, "config"), CA: ca,
		Webhooks: s.cfg.webhookPort(), Certificates: s.cfg.webhookCertificates(),
		Nonce: func(ctx context.Context) ([]byte, error) { return s.admin(ctx, "cluster", "nonce") },
	}
	if s.cfg.ownCluster() {
		c.ClusterAPI = filepath.Join(s.cfg.plane(), "capi")
	}
	return kube.Install(ctx, c)
}

// writeOperatorConfig writes the operator's config with the shards' addresses.
func (s *Stack) writeOperatorConfig() error {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster_id: %s\nshards:\n", clusterID)
	for _, one := range s.cfg.shards() {
		registration, operator := s.cfg.addrs(one, registrationPort, "; "), s.cfg.addrs(one, operatorPort, "; ")
		fmt.Fprintf(&b, "  %s:\n    registration_addr: %q\n    operator_addr: %q\n", one.id, registration, operator)
	}
	path := filepath.Join(s.cfg.Temp, "operator", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if current, err := os.ReadFile(path); err == nil && string(current) == b.String() {
		return nil
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

// waitNodes waits until each instance has a ready node, and each group is a MachinePool.
func (s *Stack) waitNodes(ctx context.Context) error {
	cluster, err := kube.Open(s.cfg.Kubeconfig)
	if err != nil {
		return err
	}
	return poll(ctx, func() (bool, string) {
		groups, err := s.groups(ctx)
		if err != nil {
			return false, err.Error()
		}
		pools, err := cluster.Pools(ctx)
		if err != nil {
			return false, err.Error()
		}
		want := 0
		for _, g := range groups {
			want += g.ActualSize
			if !slices.Contains(pools, g.Key) {
				return false, fmt.Sprintf("group %s is no MachinePool: those are %v", g.Key, pools)
			}
		}
		ready, err := cluster.ReadyNodes(ctx)
		if err != nil {
			return false, err.Error()
		}
		return ready >= want, fmt.Sprintf("%d of %d nodes are ready", ready, want)
	})
}
