package operator

import (
	"crypto/rand"
	mathrand "math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nstance/nstance/pkg/operator/bootstrap"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/cluster"
	"github.com/nstance/nstance/pkg/operator/drain"
	"github.com/nstance/nstance/pkg/operator/machine"
	"github.com/nstance/nstance/pkg/operator/ondemand"
	"github.com/nstance/nstance/pkg/operator/pool"
	"github.com/nstance/nstance/pkg/operator/problems"
	"github.com/nstance/nstance/pkg/operator/settings"
	"github.com/nstance/nstance/pkg/operator/shardgroup"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/workload"
)

// recorder is the reporting controller of Kubernetes events.
const recorder = "nstance-operator"

// tokenLifetime is the lifetime of a kubeconfig token. Tokens are renewed well before it ends.
const tokenLifetime = 2 * time.Hour

// parts holds what the controllers are built from.
type parts struct {
	settings.Settings
	manager  ctrl.Manager
	shards   *shards.Set
	workload *workload.Cluster
	now      func() time.Time
}

// controller is a reconciler that registers itself with a manager.
type controller interface {
	SetupWithManager(mgr ctrl.Manager) error
}

// controllers returns all controllers of the operator.
func controllers(p parts) []controller {
	api, events := p.manager.GetClient(), p.manager.GetEventRecorder(recorder)
	here, name := p.Namespace, capi.ClusterName(p.File.Cluster, p.File.Tenant)
	selfHosted := p.CAPIEndpoint == ""
	pods := &ondemand.Reconciler{
		Client: api, Reader: p.manager.GetAPIReader(), Workload: p.workload, Recorder: p.workload.Recorder(recorder),
		Shards: p.shards, Tenant: p.File.Tenant, Now: p.now, Random: rand.Reader,
		Cluster: types.NamespacedName{Namespace: here, Name: name},
	}
	return []controller{
		&cluster.Reconciler{
			Client: api, Reader: p.manager.GetAPIReader(), Config: p.manager.GetConfig(), Shards: p.shards, Now: p.now,
			Namespace: here, Name: name,
			Endpoint: p.CAPIEndpoint, ServiceAccount: p.CAPIServiceAccount, Lifetime: tokenLifetime,
		},
		&bootstrap.Reconciler{Client: api, Shards: p.shards, Recorder: events, Namespace: here, Cluster: name},
		&pool.Reconciler{Client: api, Reader: p.manager.GetAPIReader(), Shards: p.shards, Nodes: p.workload, Now: p.now},
		&shardgroup.Reconciler{
			Client: api, Reader: p.manager.GetAPIReader(), Shards: p.shards, Recorder: events, Now: p.now,
			Namespace: here, Cluster: name, SelfHosted: selfHosted,
		},
		&machine.Reconciler{
			Client: api, Reader: p.manager.GetAPIReader(), Shards: p.shards, Recorder: events, Random: rand.Reader,
			Jitter: mathrand.Float64, Pods: pods, Now: p.now, SelfHosted: selfHosted,
		},
		&machine.Templates{Client: api, Shards: p.shards},
		pods,
		&ondemand.Health{
			Client: api, Workload: p.workload, Shards: p.shards, Recorder: p.workload.Recorder(recorder), Now: p.now,
			NodeStartup: p.File.NodeStartup,
		},
		&drain.Reconciler{Client: api, Namespace: here, Shards: p.shards, Workload: p.workload, Recorder: events, Now: p.now},
		&problems.Reporter{
			Client: api, Shards: p.shards, Recorder: events, Now: p.now, Namespace: here, Cluster: name,
			Pods: problems.Workload{Reader: p.workload.Reader(), EventRecorder: p.workload.Recorder(recorder)},
		},
	}
}
