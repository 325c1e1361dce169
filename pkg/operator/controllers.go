package operator

import (
	"crypto/rand"
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

// recorder is whom Kubernetes' events are from.
const recorder = "nstance-operator"

// tokenLifetime is how long a token of the kubeconfig lasts. It is renewed long before.
const tokenLifetime = 2 * time.Hour

// parts is what controllers are made from.
type parts struct {
	settings.Settings
	manager  ctrl.Manager
	shards   *shards.Set
	workload *workload.Cluster
	now      func() time.Time
}

// controller is one of them.
type controller interface {
	SetupWithManager(mgr ctrl.Manager) error
}

// controllers are all that the operator runs.
func controllers(p parts) []controller {
	api, events := p.manager.GetClient(), p.manager.GetEventRecorder(recorder)
	here, name := p.Namespace, capi.ClusterName(p.File.Cluster, p.File.Tenant)
	selfHosted := p.CAPIEndpoint == ""
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
			Client: api, Reader: p.manager.GetAPIReader(), Shards: p.shards, Recorder: events, Random: rand.Reader, Now: p.now,
			SelfHosted: selfHosted,
		},
		&machine.Templates{Client: api, Shards: p.shards},
		&ondemand.Reconciler{
			Client: api, Reader: p.manager.GetAPIReader(), Workload: p.workload, Recorder: p.workload.Recorder(recorder),
			Cluster: types.NamespacedName{Namespace: here, Name: name},
		},
		&drain.Reconciler{Client: api, Namespace: here, Shards: p.shards, Workload: p.workload, Recorder: events, Now: p.now},
		&problems.Reporter{
			Client: api, Shards: p.shards, Recorder: events, Now: p.now, Namespace: here, Cluster: name,
			Pods: problems.Workload{Reader: p.workload.Reader(), EventRecorder: p.workload.Recorder(recorder)},
		},
	}
}
