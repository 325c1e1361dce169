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

// ErrNotConnected is in every error of a call that needs the workload cluster while
// there is no way to it. Nothing that is missing then means anything.
var ErrNotConnected = errors.New("no connection to the workload cluster")

// byProviderID is the index of Nodes.
const byProviderID = "spec.providerID"

// Cluster is the cluster in which nodes and pods are. It is safe for concurrent use.
type Cluster struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper

	mu      sync.Mutex
	link    *link    // nil: there is none yet
	watches []*watch // what every link feeds
	err     error    // why there is no link, or why it is not the one that is wanted
	closed  bool     // the manager has ended
}

// link is one way to the cluster.
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

// Cache is how Nodes and pods are to be kept by a manager whose Cluster is Local: pods
// of all namespaces, whatever the manager else looks at, and no more than is needed.
func Cache() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Node{}: {Transform: slimNode},
		&corev1.Pod{}: {
			Namespaces: map[string]cache.Config{cache.AllNamespaces: {}},
			Transform:  cache.TransformStripManagedFields(),
		},
	}
}

// Local is the cluster that the manager itself works in. The manager's cache should
// be made with Cache.
func Local(ctx context.Context, mgr ctrl.Manager) (*Cluster, error) {
	l, err := newLink(ctx, mgr)
	if err != nil {
		return nil, err
	}
	l.attach = nil // its sources are the manager's
	return &Cluster{scheme: mgr.GetScheme(), mapper: mgr.GetRESTMapper(), link: l}, nil
}

// newLink makes a link of a cluster that has not been started. What is attached to it
// ends with ctx.
func newLink(ctx context.Context, c cluster.Cluster) (*link, error) {
	if err := c.GetFieldIndexer().IndexField(ctx, &corev1.Node{}, byProviderID, providerIDs); err != nil {
		return nil, fmt.Errorf("index nodes: %w", err)
	}
	// The API server itself says when it is too much; a limit here would only add waits.
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

// Err says why there is no connection, or why the one that stands is not made from
// what the Secret says now; nil: all is well.
func (c *Cluster) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Client reads nodes and other objects from a cache and pods past it: only their
// metadata (PartialObjectMetadata) is cached. It may be kept; it follows changes of the
// connection, and fails with ErrNotConnected while there is none.
func (c *Cluster) Client() client.Client { return follower{c} }

// Reader reads past the cache. It may be kept, as Client may.
func (c *Cluster) Reader() client.Reader { return uncached{c} }

// RESTConfig is the way to the cluster as it is now; the caller must not change it.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	l, err := c.now()
	if err != nil {
		return nil, err
	}
	return l.config, nil
}

// Clientset makes calls past the cache, by the way to the cluster as it is now.
func (c *Cluster) Clientset() (kubernetes.Interface, error) {
	l, err := c.now()
	if err != nil {
		return nil, err
	}
	return l.clientset, nil
}

// NodeByProviderID returns the Node with a spec.providerID, the youngest if several
// have it; nil: as far as the cache knows there is none. It is the caller's own.
func (c *Cluster) NodeByProviderID(ctx context.Context, id string) (*corev1.Node, error) {
	l, err := c.now()
	if err != nil || id == "" {
		return nil, err
	}
	var nodes corev1.NodeList
	if err := l.client.List(ctx, &nodes, client.MatchingFields{byProviderID: id}); err != nil {
		return nil, fmt.Errorf("look for the node %s: %w", id, err)
	}
	var found *corev1.Node
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if found == nil || found.CreationTimestamp.Before(&n.CreationTimestamp) {
			found = n
		}
	}
	return found, nil
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

// slimNode leaves out what nobody here reads and what makes up most of a Node.
func slimNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.Status.Images = nil
	}
	return cache.TransformStripManagedFields()(o)
}
