package client

import (
	"context"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Pages collects a list from page, which returns one page and the token of the next, or an
// empty token for the last page.
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

// Parts are the parts of a group's status that may be large.
type Parts struct{ Instances, Vars bool }

// Groups lists the groups of a shard by key, with those parts, and where the shard makes its
// machines.
func Groups(ctx context.Context, s Service, with Parts) (*nstancev1.ListGroupsResponse, error) {
	var last *nstancev1.ListGroupsResponse
	all, err := Pages(func(token string) (found []*nstancev1.GroupStatus, next string, err error) {
		last, err = s.ListGroups(ctx, &nstancev1.ListGroupsRequest{PageToken: token, OmitInstances: !with.Instances, OmitVars: !with.Vars})
		return last.GetGroups(), last.GetNextPageToken(), err
	})
	if err != nil {
		return nil, err
	}
	last.Groups = all
	return last, nil
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
