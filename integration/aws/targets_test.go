//go:build integration

package aws

import (
	"log/slog"

	dev "github.com/nstance/nstance/pkg/dev/aws"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
)

// registered asks AWS itself which machines receive the load balancer's traffic.
func (f *fixture) registered() ([]string, error) {
	cfg := aws.Default(provider.Scope{ClusterID: cluster, Shard: shard}, slog.New(slog.DiscardHandler))
	cfg.Region = dev.Region
	f.t.Setenv("AWS_ENDPOINT_URL", f.aws)
	f.t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	f.t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	p, err := aws.New(f.t.Context(), cfg)
	if err != nil {
		return nil, err
	}
	balancer, _ := provider.LoadBalancerOf(p)
	return balancer.Targets(f.t.Context(), targetGroup)
}
