package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
)

func (a *app) groupReset() *cobra.Command {
	cmd := &cobra.Command{
		Use: "reset GROUP", Short: "Drop what overrides a static group, or end that a group is held whose record was missing",
		Args: cobra.ExactArgs(1),
		Long: "Drop what overrides a static group, or end that a group is held whose record was missing.\n\n" +
			"Where the static config's size is smaller than the group's, on a terminal it is asked first; elsewhere it needs --yes.",
	}
	yes := yesFlag(cmd)
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		client, shards, err := a.ask(a.target.write)
		if err != nil {
			return err
		}
		if err := a.confirmReset(cmd, *yes, client, shards, args[0]); err != nil {
			return err
		}
		reset, err := client.ResetGroup(cmd.Context(), shards, args[0])
		if len(reset) == 0 {
			return err
		}
		var in []string
		for _, g := range reset {
			in = append(in, fmt.Sprintf("%s, with size %d", g.Shard, g.Size))
		}
		return errors.Join(a.done(cmd.OutOrStdout(), fmt.Sprintf("group %s is reset in %s", args[0], strings.Join(in, "; ")), reset), err)
	})
}

// confirmReset is confirm of the sizes that a reset makes smaller. With yes, shards that
// can't say what goes are no obstacle.
func (a *app) confirmReset(cmd *cobra.Command, yes bool, c *admin.Client, shards []client.Shard, group string) error {
	goes, err := goesByReset(cmd, c, shards, group)
	if err != nil && !yes {
		return err
	}
	return a.confirm(cmd, yes, goes, "")
}

// goesByReset is a line for each shard where a reset makes a group smaller.
func goesByReset(cmd *cobra.Command, c *admin.Client, shards []client.Shard, group string) (lines []string, err error) {
	groups, err := c.GroupStatus(cmd.Context(), shards, group)
	if err != nil {
		return nil, err
	}
	var counted map[string][]string
	for _, g := range groups {
		if !g.IsStatic || g.StaticSize >= g.Size {
			continue
		}
		if counted == nil { // one listing does for all shards
			if counted, err = countedBy(cmd, c, shards, group, false); err != nil {
				return nil, err
			}
		}
		line := fmt.Sprintf("%s/%s: size %d becomes the config's %d", g.Shard, g.Key, g.Size, g.StaticSize)
		if ids := counted[g.Shard+"/"+g.Key]; len(ids) > int(g.StaticSize) {
			line += fmt.Sprintf(", so %d of these go: %s", len(ids)-int(g.StaticSize), named(ids))
		}
		lines = append(lines, line)
	}
	return lines, nil
}
