package operator

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/workload"
)

// Leader election.
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=nstance,resources=leases,resourceNames=nstance-operator-leader-election,verbs=get;update
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=nstance,resources=leases,verbs=create
// +kubebuilder:rbac:groups="",namespace=nstance,resources=events,verbs=create;patch

// newManager returns the controller manager. It watches one namespace, except for nodes and
// pods, and reads Secrets and ConfigMaps uncached, since other applications may store many.
func newManager(c Config) (manager.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	options := ctrl.Options{
		Scheme:                        scheme,
		Logger:                        c.Logger,
		HealthProbeBindAddress:        c.HealthAddr,
		Metrics:                       server.Options{BindAddress: c.MetricsAddr},
		LeaderElection:                c.LeaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       c.Namespace,
		LeaderElectionReleaseOnCancel: true, // the process ends with Run
		// With its priority queue, controller-runtime 0.24 can wait for workers that have
		// exited.
		Controller: config.Controller{UsePriorityQueue: new(false)},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{c.Namespace: {}},
			DefaultTransform:  cache.TransformStripManagedFields(), // a third of an object's size, never read
		},
		Client: kube.Options{Cache: &kube.CacheOptions{
			DisableFor: []kube.Object{&corev1.Secret{}, &corev1.ConfigMap{}},
		}},
	}
	options.Cache.ByObject = capi.Cache(capi.ClusterName(c.File.Cluster, c.File.Tenant))
	if c.CAPIEndpoint == "" {
		maps.Copy(options.Cache.ByObject, workload.Cache())
	}
	return ctrl.NewManager(c.REST, options)
}
