package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Group is one group of one shard.
type Group struct {
	Shard string
	*nstancev1.GroupStatus
	AlreadyGone []string // of the instances a change was to remove
	// ManagedBefore is what managed the group until a change was forced.
	ManagedBefore string
	// Bare: the instances were left out. JSON then has no such field, as an empty list would say that there are none.
	Bare bool
}

// MarshalJSON implements json.Marshaler: the message's JSON with the other fields.
func (g Group) MarshalJSON() ([]byte, error) {
	text, err := jsonOf(inShard{g.Shard}, g.GroupStatus, struct {
		AlreadyGone   []string `json:"already_gone,omitempty"`
		ManagedBefore string   `json:"managed_before,omitempty"`
	}{g.AlreadyGone, g.ManagedBefore})
	if err != nil || !g.Bare {
		return text, err
	}
	return withoutField(text, "instances")
}

// ListGroups returns the groups of all shards given, ordered by shard and key, with those parts. On an
// error it also returns the groups of the shards that answered.
func (c *Client) ListGroups(ctx context.Context, shards []client.Shard, with client.Parts) ([]Group, error) {
	return client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]Group, error) {
		resp, err := client.Groups(ctx, s, with)
		if err != nil {
			return nil, err
		}
		groups := make([]Group, 0, len(resp.GetGroups()))
		for _, g := range resp.GetGroups() {
			groups = append(groups, Group{Shard: shard, GroupStatus: g, Bare: !with.Instances})
		}
		return groups, nil
	})
}

// GroupStatus returns the group with that key from every shard given that has it. On an error
// it also returns the groups of the shards that answered.
func (c *Client) GroupStatus(ctx context.Context, shards []client.Shard, key string) ([]Group, error) {
	return groupStatus(ctx, c, shards, &nstancev1.GetGroupRequest{Key: key})
}

func groupStatus(ctx context.Context, c *Client, shards []client.Shard, req *nstancev1.GetGroupRequest) ([]Group, error) {
	found, err := client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]Group, error) {
		resp, err := s.GetGroup(ctx, req)
		switch {
		case status.Code(err) == codes.NotFound:
			return []Group{}, nil
		case err != nil:
			return nil, err
		}
		return []Group{{Shard: shard, GroupStatus: resp.GetGroup(), Bare: req.GetOmitInstances()}}, nil
	})
	if len(found) == 0 && err == nil {
		return nil, noGroup(ctx, c, shards, req.GetKey())
	}
	return found, err
}

// noGroup is the error of a key that no group of these shards has.
func noGroup(ctx context.Context, c *Client, shards []client.Shard, key string) error {
	have, err := groupNames(ctx, c, shards)
	if err != nil {
		return err
	}
	return fmt.Errorf("group %.80q: %w%s", key, ErrNoGroup, instead(key, have))
}

// groupNames returns the keys of the groups of all shards given, sorted.
func groupNames(ctx context.Context, c *Client, shards []client.Shard) ([]string, error) {
	all, err := c.ListGroups(ctx, shards, client.Parts{})
	var have []string
	for _, g := range all {
		have = append(have, g.GetKey())
	}
	slices.Sort(have)
	return slices.Compact(have), err
}

// maxInstead bounds the names that an error lists.
const maxInstead = 10

// instead names what there is instead of a name: the nearest names, or else all of them.
func instead(name string, have []string) string {
	switch meant := Meant(name, have); {
	case meant != "":
		return meant
	case len(have) == 0:
		return ": there are none"
	}
	text := " (have: " + strings.Join(have[:min(len(have), maxInstead)], ", ")
	if more := len(have) - maxInstead; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ")"
}

// orMeant adds to the error of a change the names of groups that a name which no shard has may have
// meant.
func orMeant(ctx context.Context, c *Client, shards []client.Shard, key string, err error) error {
	if err == nil || !everyNotFound(err) {
		return err
	}
	have, failed := groupNames(ctx, c, shards)
	if failed != nil || slices.Contains(have, key) {
		return err
	}
	return fmt.Errorf("%w%s", err, instead(key, have))
}

// everyNotFound reports whether all joined errors are NOT_FOUND.
func everyNotFound(err error) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return status.Code(err) == codes.NotFound
	}
	return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return status.Code(e) != codes.NotFound })
}

// UpsertGroup creates or changes a group in every shard given. Without a template it creates
// nothing, and a shard without the group is an error. On an error it also returns the groups of
// the shards that answered.
func (c *Client) UpsertGroup(ctx context.Context, shards []client.Shard, req *nstancev1.UpsertGroupRequest) ([]Group, error) {
	changed, err := each(ctx, c, shards, func(ctx context.Context, shard string, s client.Service) (Group, error) {
		resp, err := s.UpsertGroup(ctx, req)
		if err == nil && req.RolloutPaused != nil && resp.GetGroup().GetRolloutPaused() != req.GetRolloutPaused() {
			err = fmt.Errorf("the leader reports rollout_paused as %v: it may run a version without this field, or another call may "+
				"have changed it", resp.GetGroup().GetRolloutPaused())
		}
		return Group{
			Shard: shard, GroupStatus: resp.GetGroup(), Bare: true,
			AlreadyGone: resp.GetAlreadyGone(), ManagedBefore: resp.GetManagedBefore(),
		}, err
	})
	return changed, orMeant(ctx, c, shards, req.GetKey(), err)
}

// AbortRollout takes a group back to the definition before its rollout in every shard given. etag: nil, or the
// one that the group must have, in its only shard. On an error it also returns the groups of the shards that
// answered.
func (c *Client) AbortRollout(ctx context.Context, shards []client.Shard, key string, etag *string) ([]Group, error) {
	aborted, err := each(ctx, c, shards, func(ctx context.Context, shard string, s client.Service) (Group, error) {
		resp, err := s.AbortRollout(ctx, &nstancev1.AbortRolloutRequest{Key: key, IfEtag: etag})
		return Group{Shard: shard, GroupStatus: resp.GetGroup(), Bare: true}, err
	})
	return aborted, orMeant(ctx, c, shards, key, err)
}

// RetryRollout lets a group have the definition that it refuses, in every shard given. etag and the results are
// as in AbortRollout.
func (c *Client) RetryRollout(ctx context.Context, shards []client.Shard, key string, etag *string) ([]Group, error) {
	retried, err := each(ctx, c, shards, func(ctx context.Context, shard string, s client.Service) (Group, error) {
		resp, err := s.RetryRollout(ctx, &nstancev1.RetryRolloutRequest{Key: key, IfEtag: etag})
		return Group{Shard: shard, GroupStatus: resp.GetGroup(), Bare: true}, err
	})
	return retried, orMeant(ctx, c, shards, key, err)
}

// ResetGroup drops a static group's overrides, or releases a group held for a missing record,
// in every shard given. On an error it also returns the groups of the shards that answered. force: whatever
// manages the group.
func (c *Client) ResetGroup(ctx context.Context, shards []client.Shard, key string, force bool) ([]Group, error) {
	reset, err := each(ctx, c, shards, func(ctx context.Context, shard string, s client.Service) (Group, error) {
		resp, err := s.ResetGroup(ctx, &nstancev1.ResetGroupRequest{Key: key, Force: force})
		return Group{Shard: shard, GroupStatus: resp.GetGroup(), Bare: true}, err
	})
	return reset, orMeant(ctx, c, shards, key, err)
}

// DeleteGroup deletes a dynamic group in every shard given, and returns the shards that
// accepted. force: whatever manages the group.
func (c *Client) DeleteGroup(ctx context.Context, shards []client.Shard, key string, force bool) ([]string, error) {
	deleting, err := each(ctx, c, shards, func(ctx context.Context, shard string, s client.Service) (string, error) {
		_, err := s.DeleteGroup(ctx, &nstancev1.DeleteGroupRequest{Key: key, Force: force})
		return shard, err
	})
	return deleting, orMeant(ctx, c, shards, key, err)
}
