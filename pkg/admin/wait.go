package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/retry"
)

// WaitGroup waits until the group runs exactly as many instances as it wants and
// has no other managed record left but draining ones, whose ids it returns
// beside the group. progress, if not nil, is told each time the group's numbers
// change.
func (c *Client) WaitGroup(
	ctx context.Context, shard client.Shard, key string, progress func(Group),
) (g Group, draining []string, err error) {
	var last Group
	for {
		found, err := c.GroupStatus(ctx, []client.Shard{shard}, key)
		if err != nil {
			if ctx.Err() != nil && last.Key != "" {
				err = unfinished(shard, last, err)
			}
			return last, nil, err
		}
		g := found[0]
		if progress != nil && (last.Key == "" || numbers(g) != numbers(last)) {
			progress(g)
		}
		if last = g; g.ActualSize == g.Size && g.PendingSize == 0 {
			draining, err = c.drainingOf(ctx, shard, key)
			return g, draining, err
		}
		if retry.Wait(ctx, waitInterval) != nil {
			return last, nil, unfinished(shard, last, ctx.Err())
		}
	}
}

// waitInterval is how often a wait asks. The answer comes from the server's
// memory, so asking is cheap.
const waitInterval = 200 * time.Millisecond

func numbers(g Group) [4]int32 { return [4]int32{g.Size, g.ActualSize, g.PendingSize, g.DrainingSize} }

// unfinished says how far the group came, and what it says of itself.
func unfinished(shard client.Shard, g Group, cause error) error {
	text := fmt.Sprintf("%d of %d run, %d on their way", g.ActualSize, g.Size, g.PendingSize)
	for _, c := range g.Conditions {
		if c.Message != "" {
			text += "; " + strings.TrimSpace(c.Message)
		}
	}
	return fmt.Errorf("wait for group %s of shard %s: %s: %w", g.Key, shard.ID, text, cause)
}

func (c *Client) drainingOf(ctx context.Context, shard client.Shard, key string) ([]string, error) {
	all, err := c.ListInstances(ctx, []client.Shard{shard}, key, false)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, i := range all {
		if i.Phase == "draining" && !i.OnDemand {
			ids = append(ids, i.ID)
		}
	}
	return ids, nil
}
