package pool

import (
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// sizer is a separate controller for sizes: machines, nodes and statuses need many writes,
// which would delay scaling.
type sizer struct {
	*Reconciler

	index index
}

func (z *sizer) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("nstancemachinepool-sizes").
		For(&v1beta1.NstanceMachinePool{}).
		Owns(&v1beta1.NstanceShardGroup{}).
		Watches(&clusterv1.MachinePool{}, handler.EnqueueRequestsFromMapFunc(ofMachinePool), wanted()).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(z.ofMachine), wanted()).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(z.ofCluster), wanted()).
		WatchesRawSource(z.Shards.Source(z.index.ofEvent)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, SkipNameValidation: new(true)}).
		Complete(z)
}

// Reconcile sets the size of each part of a pool.
func (z *sizer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	z.sizing.start(req.NamespacedName)
	defer z.sizing.end(req.NamespacedName)
	s, err := z.read(ctx, z.Client, req.NamespacedName)
	if apierrors.IsNotFound(err) {
		z.index.forget(req.NamespacedName)
		z.waits.end(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	z.index.note(s)
	if !s.scalable() {
		z.waits.end(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	return z.syncSizes(ctx, s)
}

// sizing is the set of pools whose sizes are being reconciled. The zero value is empty. It is
// safe for concurrent use.
type sizing struct {
	mu  sync.Mutex
	all map[types.NamespacedName]bool
}

func (x *sizing) start(pool types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all == nil {
		x.all = map[types.NamespacedName]bool{}
	}
	x.all[pool] = true
}

func (x *sizing) end(pool types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.all, pool)
}

func (x *sizing) of(pool types.NamespacedName) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all[pool]
}

// errSizing: the pool's sizes are being reconciled, which takes only a moment.
var errSizing = errors.New("its sizes are being reconciled")
