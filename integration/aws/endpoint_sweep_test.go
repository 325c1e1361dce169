//go:build integration

package aws

import (
	"context"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

// sweep terminates the instances of all clusters with this prefix, and waits until they have ended.
func (e *endpoint) sweep(t *testing.T, clusters string) {
	t.Helper()
	if err := retry.Wait(context.WithoutCancel(t.Context()), e.eventual); err != nil {
		t.Error(err) // until then a new instance may not be listed
	}
	e.within(t, "end the instances of "+clusters, func(ctx context.Context) error {
		ids, err := e.alive(ctx, clusters)
		if err != nil || len(ids) == 0 {
			return err
		}
		if _, err := e.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids}); err != nil {
			return err
		}
		return fmt.Errorf("%v have not ended", ids)
	})
}

// alive returns the clusters' instances that have not ended.
func (e *endpoint) alive(ctx context.Context, clusters string) ([]string, error) {
	pages := ec2.NewDescribeInstancesPaginator(e.ec2, &ec2.DescribeInstancesInput{
		Filters: filter("tag:"+provider.TagClusterID, clusters+"*"),
	})
	var ids []string
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				if i.State.Name != types.InstanceStateNameTerminated {
					ids = append(ids, *i.InstanceId)
				}
			}
		}
	}
	return ids, nil
}
