package cluster

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
)

// ensure creates missing objects. The Cluster comes last, so that its controllers find the
// others.
func (r *Reconciler) ensure(ctx context.Context, s *state) error {
	switch {
	case s.infra == nil, s.infra.DeletionTimestamp.IsZero() && !r.complete(s.infra):
		if err := r.apply(ctx, r.wantedInfra()); err != nil {
			return err
		}
	case !s.infra.DeletionTimestamp.IsZero():
		// It was deleted on its own: release it, so that it can be created anew. Nothing is
		// cleaned up, since the Cluster stays.
		if err := r.release(ctx, s.infra); err != nil {
			return err
		}
	}
	if s.control == nil {
		if err := r.apply(ctx, r.object(v1beta1.GroupVersion().WithKind("NstanceControlPlane"), nil)); err != nil {
			return err
		}
	}
	if s.cluster == nil {
		return r.apply(ctx, r.wantedCluster())
	}
	return nil
}

// complete reports whether the NstanceCluster has all that the operator sets in its spec.
func (r *Reconciler) complete(o *v1beta1.NstanceCluster) bool {
	return o.Spec.ControlPlaneEndpoint == r.at && controllerutil.ContainsFinalizer(o, v1beta1.Finalizer)
}

func (r *Reconciler) wantedInfra() *unstructured.Unstructured {
	o := r.object(v1beta1.GroupVersion().WithKind("NstanceCluster"), map[string]any{
		"controlPlaneEndpoint": map[string]any{"host": r.at.Host, "port": int64(r.at.Port)},
	})
	o.SetFinalizers([]string{v1beta1.Finalizer})
	return o
}

func (r *Reconciler) wantedCluster() *unstructured.Unstructured {
	ref := func(kind string) map[string]any {
		return map[string]any{"apiGroup": v1beta1.Group, "kind": kind, "name": r.Name}
	}
	return r.object(clusterv1.GroupVersion.WithKind("Cluster"), map[string]any{
		"infrastructureRef": ref("NstanceCluster"),
		"controlPlaneRef":   ref("NstanceControlPlane"),
	})
}

func (r *Reconciler) object(kind schema.GroupVersionKind, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(r.Namespace)
	o.SetName(r.Name)
	o.SetLabels(map[string]string{clusterv1.ClusterNameLabel: r.Name})
	if spec != nil {
		o.Object["spec"] = spec
	}
	return o
}

func (r *Reconciler) apply(ctx context.Context, o *unstructured.Unstructured) error {
	err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), capi.FieldOwner, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// release removes the finalizer.
func (r *Reconciler) release(ctx context.Context, o *v1beta1.NstanceCluster) error {
	was := o.DeepCopy()
	if !controllerutil.RemoveFinalizer(o, v1beta1.Finalizer) {
		return nil
	}
	err := r.Client.Patch(ctx, o, capi.Locked(was))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release NstanceCluster %s: %w", o.Name, err)
	}
	return nil
}

// endpoint returns the address of the workload cluster's API server.
func (r *Reconciler) endpoint() (clusterv1.APIEndpoint, error) {
	at, what := r.Endpoint, "NSTANCE_CAPI_ENDPOINT"
	if at == "" {
		server, _, err := rest.DefaultServerUrlFor(r.Config)
		if err != nil {
			return clusterv1.APIEndpoint{}, fmt.Errorf("the API server's address %q: %w", r.Config.Host, err)
		}
		at, what = server.String(), "the API server's address"
	}
	if !strings.Contains(at, "://") {
		at = "https://" + at
	}
	u, err := url.Parse(at)
	if err != nil || u.Hostname() == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return clusterv1.APIEndpoint{}, fmt.Errorf("%s is %q: want a host and a port, such as https://api.example.com:6443", what, at)
	}
	port := map[string]string{"https": "443", "http": "80"}[u.Scheme]
	if u.Port() != "" {
		port = u.Port()
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return clusterv1.APIEndpoint{}, fmt.Errorf("%s is %q: want a port of 1 to 65535", what, at)
	}
	return clusterv1.APIEndpoint{Host: u.Hostname(), Port: int32(n)}, nil
}
