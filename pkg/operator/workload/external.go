package workload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// secretKey is the Secret's key in which Cluster API looks for a kubeconfig.
	secretKey = "value"
	// connectTimeout bounds the first call to a cluster and the first list of each kind.
	connectTimeout = 30 * time.Second
	// retryAtMost is the maximum delay between attempts to connect.
	retryAtMost = 30 * time.Second
)

// connector maintains the link for a Secret's kubeconfig.
type connector struct {
	cluster *Cluster
	secret  client.ObjectKey
	reader  client.Reader
	config  *rest.Config // the manager's
	sum     [sha256.Size]byte
}

// External returns the cluster of the kubeconfig in a Secret. A controller connects as soon as
// the Secret exists, and again whenever it changes; until the new connection works, the
// previous one stays. Only the leader connects.
func External(mgr ctrl.Manager, secret client.ObjectKey) (*Cluster, error) {
	c := &Cluster{
		scheme: mgr.GetScheme(), mapper: mgr.GetRESTMapper(),
		err: fmt.Errorf("the Secret %s has not been read yet", secret),
	}
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool { return client.ObjectKeyFromObject(o) == secret })
	err := ctrl.NewControllerManagedBy(mgr).Named("workload").
		For(&corev1.Secret{}, builder.OnlyMetadata, builder.WithPredicates(ours)).
		WithOptions(controller.Options{
			SkipNameValidation: new(true),
			RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, retryAtMost),
		}).
		Complete(&connector{cluster: c, secret: secret, reader: mgr.GetAPIReader(), config: mgr.GetConfig()})
	if err != nil {
		return nil, err
	}
	return c, mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		c.close()
		return nil
	}))
}

// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=example-cluster--default-kubeconfig,namespace=nstance,roleName=nstance-operator-kubeconfig,verbs=get;list;watch

// Reconcile connects to the cluster of the Secret's kubeconfig.
func (r *connector) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	err := r.connect(ctx)
	r.cluster.report(err)
	return reconcile.Result{}, err
}

func (r *connector) connect(ctx context.Context) error {
	var s corev1.Secret
	if err := r.reader.Get(ctx, r.secret, &s); apierrors.IsNotFound(err) {
		return fmt.Errorf("the Secret %s does not exist: create it with a kubeconfig under %q", r.secret, secretKey)
	} else if err != nil {
		return err
	}
	kubeconfig := bytes.TrimSpace(s.Data[secretKey])
	if len(kubeconfig) == 0 {
		return fmt.Errorf("the Secret %s has no kubeconfig under %q", r.secret, secretKey)
	}
	sum := sha256.Sum256(kubeconfig)
	if sum == r.sum {
		return nil
	}
	l, err := r.open(ctx, kubeconfig)
	if err != nil {
		return fmt.Errorf("the Secret %s: %w", r.secret, err)
	}
	r.cluster.swap(ctx, l)
	r.sum = sum
	log.FromContext(ctx).Info("connected to the workload cluster", "host", l.config.Host)
	return nil
}

// open returns a working link with a filled cache.
func (r *connector) open(ctx context.Context, kubeconfig []byte) (*link, error) {
	config, err := inline(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("its kubeconfig: %w", err)
	}
	config.UserAgent = r.config.UserAgent
	config.ContentType, config.AcceptContentTypes = r.config.ContentType, r.config.AcceptContentTypes
	config.QPS = -1
	made, err := cluster.New(config, func(o *cluster.Options) {
		o.Scheme = r.cluster.scheme
		o.Cache = cache.Options{ByObject: Cache()}
	})
	if err != nil {
		return nil, err
	}
	// The link outlives the request's context.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	l, err := newLink(life, made)
	if err != nil {
		stop()
		return nil, err
	}
	l.stop = stop
	if err := r.cluster.warm(ctx, life, made, l); err != nil {
		stop()
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return l, nil
}

// warm starts a link and waits until its caches are filled.
func (c *Cluster) warm(ctx, life context.Context, made cluster.Cluster, l *link) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	// One direct call first: it returns the error, which a cache would only log.
	if err := l.reader.List(ctx, &corev1.NodeList{}, client.Limit(1)); err != nil {
		return err
	}
	go func() {
		if err := made.Start(life); err != nil && life.Err() == nil {
			log.FromContext(life).Error(err, "the workload cluster's cache stopped")
		}
	}()
	c.mu.Lock()
	objects := []client.Object{&corev1.Node{}}
	for _, w := range c.watches {
		objects = append(objects, w.object)
	}
	c.mu.Unlock()
	for _, o := range objects {
		if _, err := l.cache.GetInformer(ctx, o); err != nil {
			return fmt.Errorf("list %T: %w", o, err)
		}
	}
	// A cache that has not started yields informers without data.
	if !l.cache.WaitForCacheSync(ctx) {
		return fmt.Errorf("fill the cache: not done within %s", connectTimeout)
	}
	return nil
}

// swap replaces the link. Events of the new link come after that, so that handlers read the
// new one.
func (c *Cluster) swap(ctx context.Context, l *link) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		l.stop()
		return
	}
	old, watches := c.link, append([]*watch(nil), c.watches...)
	c.link = l
	var errs []error
	for _, w := range watches {
		errs = append(errs, l.attach(w))
	}
	c.mu.Unlock()
	if old != nil {
		for _, w := range watches {
			errs = append(errs, w.missed(ctx, c.scheme, old, l))
		}
		old.stop()
	}
	if err := errors.Join(errs...); err != nil {
		log.FromContext(ctx).Error(err, "feed controllers from the new connection")
	}
}

func (c *Cluster) report(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *Cluster) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.link != nil {
		c.link.stop()
	}
}
