package operator

import (
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nstance/nstance/pkg/operator/workload"
)

// To elect a leader.
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=nstance,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:groups="",namespace=nstance,resources=events,verbs=create;patch

// newManager makes what runs controllers. It looks at one namespace, but for nodes and
// pods, and reads Secrets and ConfigMaps past its cache, of which others may hold a lot.
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
		// The priority queue of controller-runtime 0.24 can wait for workers that have left.
		Controller: config.Controller{UsePriorityQueue: new(false)},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{c.Namespace: {}},
			DefaultTransform:  cache.TransformStripManagedFields(), // a third of an object, of which nothing is read
		},
		Client: kube.Options{Cache: &kube.CacheOptions{
			DisableFor: []kube.Object{&corev1.Secret{}, &corev1.ConfigMap{}},
		}},
	}
	if c.CAPIEndpoint == "" {
		options.Cache.ByObject = workload.Cache()
	}
	return ctrl.NewManager(c.REST, options)
}
