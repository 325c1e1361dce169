package shardgroup

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

const (
	// few objects are read one by one, beside each other; more of them with one list.
	few = 8
	// lookTimeout is how long the API server may take.
	lookTimeout = 10 * time.Second
)

// basis is what a change was decided on.
type basis struct {
	identity

	etag string // the group's, which was known before the look
}

// identity tells an object, and each of its specs, from any other.
type identity struct {
	uid        types.UID
	generation int64
}

// look is a reading of an object past the cache.
type look struct {
	of    basis
	ended bool
	fresh bool // the object is the one that the change was decided on
	err   error
}

// looks read objects past the cache before their groups are changed, beside the
// reconciler's workers. Those that are asked for while others are read are read together:
// the reads of a thousand groups that all differ, each for itself, would take so long
// that the shards could not write their changes together. When a look has ended, its
// request is reconciled again, and finds what came of it. Safe for concurrent use.
type looks struct {
	read func(context.Context, []reconcile.Request) (map[reconcile.Request]identity, error)

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // in which is read: that of the controller
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	waiting []reconcile.Request
	reading bool
	of      map[reconcile.Request]*look
}

func newLooks(read func(context.Context, []reconcile.Request) (map[reconcile.Request]identity, error)) *looks {
	return &looks{read: read, of: map[reconcile.Request]*look{}}
}

// begin is the source that ended looks feed.
func (l *looks) begin(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx, l.queue = ctx, queue
	return nil
}

// take returns what came of a request's look, once: it is of use for the very next
// decision, unless it is kept. nil: there was none, or it is under way.
func (l *looks) take(req reconcile.Request) (found *look, underWay bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found = l.of[req]; found != nil && !found.ended {
		return nil, true
	}
	delete(l.of, req)
	return found, false
}

// ask begins a request's look, which must have none.
func (l *looks) ask(req reconcile.Request, of basis) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[req] = &look{of: of}
	l.waiting = append(l.waiting, req)
	if !l.reading {
		l.reading = true
		go l.run()
	}
}

// keep gives a look back that was taken and not used.
func (l *looks) keep(req reconcile.Request, taken *look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[req] = taken
}

// any reports whether there is a look that is under way or not used yet.
func (l *looks) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of) > 0
}

// run reads until nobody waits.
func (l *looks) run() {
	for {
		l.mu.Lock()
		batch := l.waiting
		l.waiting, l.reading = nil, len(batch) > 0
		ctx, queue := l.ctx, l.queue
		l.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		now, err := l.read(ctx, batch)
		l.mu.Lock()
		for _, req := range batch {
			made := l.of[req]
			made.ended, made.err, made.fresh = true, err, now[req] == made.of.identity
		}
		l.mu.Unlock()
		for _, req := range batch {
			queue.Add(req)
		}
	}
}

// identities reads what objects there are, past the cache. One that is missing is gone.
func (r *Reconciler) identities(ctx context.Context, requests []reconcile.Request) (map[reconcile.Request]identity, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	out := make(map[reconcile.Request]identity, len(requests))
	if len(requests) > few {
		var all metav1.PartialObjectMetadataList
		all.SetGroupVersionKind(v1beta1.GroupVersion().WithKind("NstanceShardGroupList"))
		if err := r.Reader.List(ctx, &all, client.InNamespace(r.Namespace)); err != nil {
			return nil, err
		}
		for i := range all.Items {
			o := &all.Items[i]
			out[reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}] = identity{o.UID, o.Generation}
		}
		return out, nil
	}
	objects, errs := make([]v1beta1.NstanceShardGroup, len(requests)), make([]error, len(requests))
	var reads sync.WaitGroup
	for i, req := range requests {
		reads.Go(func() { errs[i] = client.IgnoreNotFound(r.Reader.Get(ctx, req.NamespacedName, &objects[i])) })
	}
	reads.Wait()
	for i, req := range requests {
		out[req] = identity{objects[i].UID, objects[i].Generation} // nothing, if it is not there
	}
	return out, errors.Join(errs...)
}
