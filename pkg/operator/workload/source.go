package workload

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// watch feeds one controller's queue with events of one kind.
type watch struct {
	object     client.Object
	handler    handler.EventHandler
	predicates []predicate.Predicate
	queue      workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Source feeds a controller with the events of a kind, across changes of the connection: each
// new connection sends all its objects, and deletions of those that are gone. Pods must be
// given as PartialObjectMetadata.
func (c *Cluster) Source(o client.Object, requests handler.MapFunc, predicates ...predicate.Predicate) source.Source {
	w := watch{object: o, handler: handler.EnqueueRequestsFromMapFunc(requests), predicates: predicates}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil && c.link.attach == nil {
		return w.kind(c.link.cache)
	}
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w.queue = queue
		return c.feed(&w)
	})
}

func (c *Cluster) feed(w *watch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches = append(c.watches, w)
	if c.link == nil {
		return nil
	}
	return c.link.attach(w)
}

func (w *watch) kind(from cache.Cache) source.SyncingSource {
	return source.Kind(from, w.object, w.handler, w.predicates...)
}

// missed sends deletions of objects that an old link had and a new link lacks, since neither
// reports them.
func (w *watch) missed(ctx context.Context, scheme *runtime.Scheme, old, now *link) error {
	had, err := w.list(ctx, scheme, old)
	if err != nil {
		return err
	}
	has, err := w.list(ctx, scheme, now)
	if err != nil {
		return err
	}
	for key, o := range had {
		if _, still := has[key]; !still && w.wants(o) {
			w.handler.Delete(ctx, event.DeleteEvent{Object: o}, w.queue)
		}
	}
	return nil
}

func (w *watch) wants(o client.Object) bool {
	for _, p := range w.predicates {
		if !p.Delete(event.DeleteEvent{Object: o}) {
			return false
		}
	}
	return true
}

// list returns the cached objects of the watched kind.
func (w *watch) list(ctx context.Context, scheme *runtime.Scheme, l *link) (map[client.ObjectKey]client.Object, error) {
	list, err := listOf(scheme, w.object)
	if err != nil {
		return nil, err
	}
	if err := l.cache.List(ctx, list); err != nil {
		return nil, err
	}
	all := map[client.ObjectKey]client.Object{}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if o, ok := item.(client.Object); ok {
			all[client.ObjectKeyFromObject(o)] = o
		}
		return nil
	})
	return all, err
}

func listOf(scheme *runtime.Scheme, o client.Object) (client.ObjectList, error) {
	gvk, err := apiutil.GVKForObject(o, scheme)
	if err != nil {
		return nil, err
	}
	gvk.Kind += "List"
	if _, partial := o.(*metav1.PartialObjectMetadata); partial {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	}
	made, err := scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	list, ok := made.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%s is not a list", gvk)
	}
	return list, nil
}
