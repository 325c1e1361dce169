package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// ErrNotConnected is wrapped by errors of calls that need the workload cluster while there is
// no connection. Absence means nothing then.
var ErrNotConnected = errors.New("no connection to the workload cluster")

// byProviderID is an index of Nodes.
const byProviderID = "spec.providerID"

// Cluster is the cluster of the nodes and pods. It is safe for concurrent use.
type Cluster struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper

	mu      sync.Mutex
	link    *link    // nil: not connected yet
	watches []*watch // fed by every link
	err     error    // why there is no link, or none for the current Secret
	closed  bool     // the manager has stopped
}

// link is a connection to the cluster.
type link struct {
	client    client.Client
	reader    client.Reader
	cache     cache.Cache
	config    *rest.Config
	clientset kubernetes.Interface
	recorder  func(name string) events.EventRecorder
	attach    func(*watch) error
	stop      func()
}

// Cache configures how a manager whose Cluster is Local caches Nodes and pods: the pods of all
// namespaces, and no more of them than needed.
func Cache() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Node{}: {Transform: slimNode},
		&corev1.Pod{}: {
			Namespaces: map[string]cache.Config{cache.AllNamespaces: {}},
			Transform:  cache.TransformStripManagedFields(),
		},
	}
}

// Local returns the manager's own cluster. The manager's cache should be configured with
// Cache.
func Local(ctx context.Context, mgr ctrl.Manager) (*Cluster, error) {
	l, err := newLink(ctx, mgr)
	if err != nil {
		return nil, err
	}
	l.attach = nil // the manager runs its sources
	return &Cluster{scheme: mgr.GetScheme(), mapper: mgr.GetRESTMapper(), link: l}, nil
}

// newLink returns a link of a cluster that has not been started. What is attached to it stops
// with ctx.
func newLink(ctx context.Context, c cluster.Cluster) (*link, error) {
	if err := c.GetFieldIndexer().IndexField(ctx, &corev1.Node{}, byProviderID, providerIDs); err != nil {
		return nil, fmt.Errorf("index nodes: %w", err)
	}
	// No client-side rate limit: the API server has its own.
	config := rest.CopyConfig(c.GetConfig())
	config.QPS = -1
	clientset, err := kubernetes.NewForConfigAndClient(config, c.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	return &link{
		client: c.GetClient(), reader: c.GetAPIReader(), cache: c.GetCache(), config: config, clientset: clientset,
		recorder: c.GetEventRecorder,
		attach:   func(w *watch) error { return w.kind(c.GetCache()).Start(ctx, w.queue) },
		stop:     func() {},
	}, nil
}

// Err returns why there is no connection, or why it does not use the Secret's current
// kubeconfig; nil if it does.
func (c *Cluster) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Client reads nodes and other objects from a cache and full pods uncached: only pods'
// metadata (PartialObjectMetadata) is cached. It may be kept; it follows changes of the
// connection, and fails with ErrNotConnected while there is none.
func (c *Cluster) Client() client.Client { return follower{c} }

// Reader reads uncached. Like Client it may be kept.
func (c *Cluster) Reader() client.Reader { return uncached{c} }

// RESTConfig returns the current connection's config; the caller must not change it.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	l, err := c.now()
	if err != nil {
		return nil, err
	}
	return l.config, nil
}

// Clientset makes uncached calls over the current connection.
func (c *Cluster) Clientset() (kubernetes.Interface, error) {
	l, err := c.now()
	if err != nil {
		return nil, err
	}
	return l.clientset, nil
}

// NodesByProviderID returns copies of all cached Nodes with a spec.providerID; none if id is
// empty.
func (c *Cluster) NodesByProviderID(ctx context.Context, id string) ([]corev1.Node, error) {
	l, err := c.now()
	if err != nil || id == "" {
		return nil, err
	}
	var nodes corev1.NodeList
	if err := l.client.List(ctx, &nodes, client.MatchingFields{byProviderID: id}); err != nil {
		return nil, fmt.Errorf("find node %s: %w", id, err)
	}
	return nodes.Items, nil
}

func (c *Cluster) now() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.link != nil:
		return c.link, nil
	case c.err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, c.err)
	}
	return nil, ErrNotConnected
}

func providerIDs(o client.Object) []string {
	if n, ok := o.(*corev1.Node); ok && n.Spec.ProviderID != "" {
		return []string{n.Spec.ProviderID}
	}
	return nil
}

// slimNode drops the large parts of a Node that are not read here.
func slimNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.Status.Images = nil
	}
	return cache.TransformStripManagedFields()(o)
}
