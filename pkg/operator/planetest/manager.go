package planetest

import (
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// ManagerOptions are those of a manager of one namespace. As in the operator, the priority
// queue is off: with that of controller-runtime 0.24, the manager's stop can hang on a worker
// that has exited.
func (p *Plane) ManagerOptions(ns string) ctrl.Options {
	return ctrl.Options{
		Scheme:     p.Client.Scheme(),
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true), UsePriorityQueue: new(false)},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{ns: {}}},
	}
}
