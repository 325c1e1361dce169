//go:build integration

package aws

import (
	"log/slog"

	dev "github.com/nstance/nstance/pkg/dev/aws"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
)

// registered asks AWS itself which machines the load balancer sends traffic to.
func (w *world) registered() ([]string, error) {
	cfg := aws.Default(provider.Scope{ClusterID: cluster, Shard: shard}, slog.New(slog.DiscardHandler))
	cfg.Region = dev.Region
	w.t.Setenv("AWS_ENDPOINT_URL", w.aws)
	w.t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	w.t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	p, err := aws.New(w.t.Context(), cfg)
	if err != nil {
		return nil, err
	}
	balancer, _ := provider.LoadBalancerOf(p)
	return balancer.Targets(w.t.Context(), targetGroup)
}
