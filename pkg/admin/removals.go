package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// maxNamed is the number of instances named per group that is emptied.
const maxNamed = 10

// Counted returns the IDs of the instances that a group counts, and of its on-demand instances
// if onDemand is set, by shard/group: those that go when the group is emptied.
func (c *Client) Counted(ctx context.Context, shards []client.Shard, group string, onDemand bool) (map[string][]string, error) {
	all, err := c.ListInstances(ctx, shards, group, false)
	if err != nil {
		return nil, fmt.Errorf("list the instances to remove: %w", err)
	}
	ids := map[string][]string{}
	for _, i := range all {
		counted := i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_PENDING ||
			i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING
		if of := i.Shard + "/" + i.GetGroup(); counted && (onDemand || !i.GetOnDemand()) {
			ids[of] = append(ids[of], i.GetId())
		}
	}
	return ids, nil
}

// RemovalLines returns a line for each group in the result of Counted.
func RemovalLines(ids map[string][]string) (lines []string) {
	for _, of := range slices.Sorted(maps.Keys(ids)) {
		lines = append(lines, fmt.Sprintf("%s: %s", of, NameInstances(ids[of])))
	}
	return lines
}

// NameInstances formats the number of instances and the first few IDs. It sorts ids.
func NameInstances(ids []string) string {
	slices.Sort(ids)
	noun := "instances"
	if len(ids) == 1 {
		noun = "instance"
	}
	text := fmt.Sprintf("%d %s: %s", len(ids), noun, strings.Join(ids[:min(len(ids), maxNamed)], ", "))
	if more := len(ids) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
