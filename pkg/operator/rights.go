package operator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/capi"
)

// mayKeepKubeconfig returns an error if the operator may not read its kubeconfig Secret. The
// Role names that Secret, which is named after the cluster; without this check the controllers
// would only report, minutes later, that their caches did not sync. Other errors are left to
// the controllers.
func mayKeepKubeconfig(ctx context.Context, reader kube.Reader, c Config) error {
	name := capi.KubeconfigName(capi.ClusterName(c.File.Cluster, c.File.Tenant))
	err := reader.Get(ctx, kube.ObjectKey{Namespace: c.Namespace, Name: name}, &corev1.Secret{})
	if !apierrors.IsForbidden(err) {
		return nil
	}
	return fmt.Errorf("the operator may not read the Secret %s/%s: its Role nstance-operator-kubeconfig has to name it in resourceNames, "+
		"for cluster_id %s and tenant %s: %w", c.Namespace, name, c.File.Cluster, c.File.Tenant, err)
}
