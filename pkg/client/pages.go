package client

import (
	"context"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Pages gathers a list of which page returns one part at a time, and the token of the
// next one; empty: that was the last.
func Pages[T any](page func(token string) (found []T, next string, err error)) (all []T, err error) {
	for token := ""; ; {
		found, next, err := page(token)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
		if token = next; token == "" {
			return all, nil
		}
	}
}

// Instances lists the instances of one group, or of all when group is empty, in the
// order of their ids; tombstones only when asked for.
func Instances(ctx context.Context, s Service, group string, deleted bool) ([]*nstancev1.InstanceStatus, error) {
	return Pages(func(token string) ([]*nstancev1.InstanceStatus, string, error) {
		req := &nstancev1.ListInstancesRequest{Group: group, IncludeDeleted: deleted, PageToken: token}
		resp, err := s.ListInstances(ctx, req)
		return resp.GetInstances(), resp.GetNextPageToken(), err
	})
}
