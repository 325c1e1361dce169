// Package nodes keeps a Kubernetes Node for each machine of the development stack, whose containers
// and processes run no kubelet. So workloads can be scheduled, drained and lost without real
// machines.
//
// It keeps no state: Nodes and machines are compared every few seconds, and at once when a machine
// changes, so that whatever was missed while the API server was away is corrected.
package nodes

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

const (
	// interval is the time between two heartbeats of a Node, as those of a kubelet.
	interval = 10 * time.Second
	// retryAfter is the time until a failed sync is repeated.
	retryAfter = time.Second
	// syncTimeout bounds one sync, and requestTimeout one request of it.
	syncTimeout    = 30 * time.Second
	requestTimeout = 10 * time.Second
)

// Machines is the read-only part of a shard's provider.
type Machines interface {
	List(context.Context) ([]provider.VM, error)
	provider.Watcher
}

// Config configures Run.
type Config struct {
	// API connects to the API server. It is called again after a failure, as the address may have
	// changed.
	API      func() (kubernetes.Interface, error)
	Machines Machines
	Scope    provider.Scope
	Kind     string // of the provider, for Node.spec.providerID
	Interval time.Duration
	Now      func() time.Time
	Logger   *slog.Logger
}

// Default returns the config with the usual interval and clock.
func Default(kubeconfig string, machines Machines, scope provider.Scope, kind string, logger *slog.Logger) Config {
	return Config{
		API: Kubeconfig(kubeconfig), Machines: machines, Scope: scope, Kind: kind, Interval: interval, Now: time.Now, Logger: logger,
	}
}

// Kubeconfig opens the API server that a file names at the time of the call.
func Kubeconfig(path string) func() (kubernetes.Interface, error) {
	return func() (kubernetes.Interface, error) {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			return nil, err
		}
		config.QPS, config.Timeout = -1, requestTimeout
		return kubernetes.NewForConfig(config)
	}
}

// Run keeps the Nodes in sync with the machines until ctx ends. The API server may come up later.
// Nodes and machines are left as they are.
func Run(ctx context.Context, cfg Config) {
	k := &syncer{cfg: cfg, wake: make(chan struct{}, 1)}
	var watch sync.WaitGroup
	watch.Go(func() { k.watch(ctx) })
	defer watch.Wait()
	for {
		err := k.sync(ctx)
		k.report(ctx, err)
		next := cfg.Interval
		if err != nil {
			next = min(next, retryAfter)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		case <-k.wake:
		}
	}
}

// syncer keeps the Nodes of one shard in sync.
type syncer struct {
	cfg  Config
	wake chan struct{} // capacity 1

	// Only Run's goroutine uses these:
	api       kubernetes.Interface // nil: not connected
	version   string               // of the API server, which a kubelet's would be close to
	lastError string               // the last one that was logged; empty: none since the last success
}

// watch wakes Run when a machine changes.
func (k *syncer) watch(ctx context.Context) {
	wake := func(provider.Event) {
		select {
		case k.wake <- struct{}{}:
		default: // a wake-up is pending already
		}
	}
	for ctx.Err() == nil {
		// The cause of a broken watch is an error of the next List too, which is reported.
		_ = k.cfg.Machines.Watch(ctx, wake)
		_ = retry.Wait(ctx, retryAfter) // its error says that ctx has ended
	}
}

// report logs an error if it differs from the one before.
func (k *syncer) report(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == k.lastError || ctx.Err() != nil {
		return
	}
	k.lastError = text
	shard := slog.String("shard", k.cfg.Scope.Shard)
	if err == nil {
		k.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "nodes follow the machines again", shard)
		return
	}
	k.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nodes don't follow the machines", shard, slog.Any("error", err))
}
