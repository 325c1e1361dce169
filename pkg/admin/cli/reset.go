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
		Use: "reset GROUP", Short: "Drop a static group's overrides, or release a group held for a missing record",
		Args: cobra.ExactArgs(1),
		Long: "Drop the overrides of a static group, a pause or an abort of its rollout included, or release a group that is held\n" +
			"because its record was missing.\n\n" +
			"If the static config's size is smaller than the group's, or its rollout was aborted, the command prompts on a terminal;\n" +
			"otherwise it needs --yes.",
	}
	yes, force := yesFlag(cmd), forceFlag(cmd)
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		client, shards, err := a.connect(a.target.write)
		if err != nil {
			return err
		}
		if err := a.confirmReset(cmd, *yes, client, shards, args[0]); err != nil {
			return err
		}
		reset, err := client.ResetGroup(cmd.Context(), shards, args[0], *force)
		if len(reset) == 0 {
			return err
		}
		var in []string
		for _, g := range reset {
			in = append(in, fmt.Sprintf("%s, with size %d", g.Shard, g.GetSize()))
		}
		return errors.Join(a.done(cmd.OutOrStdout(), fmt.Sprintf("group %s is reset in %s", args[0], strings.Join(in, "; ")), reset), err)
	})
}

// confirmReset confirms the sizes that a reset reduces. With yes, shards that can't be listed
// are ignored.
func (a *app) confirmReset(cmd *cobra.Command, yes bool, c *admin.Client, shards []client.Shard, group string) error {
	goes, err := goesByReset(cmd, c, shards, group)
	if err != nil && !yes {
		return err
	}
	return a.confirm(cmd, yes, goes, "")
}

// goesByReset returns a line for each shard where a reset shrinks the group.
func goesByReset(cmd *cobra.Command, c *admin.Client, shards []client.Shard, group string) (lines []string, err error) {
	groups, err := c.GroupStatus(cmd.Context(), shards, group)
	if err != nil {
		return nil, err
	}
	var counted map[string][]string
	for _, g := range groups {
		if g.GetIsStatic() && admin.Refuses(g) {
			lines = append(lines, fmt.Sprintf("%s/%s: the rollout that was aborted begins again", g.Shard, g.GetKey()))
		}
		if !g.GetIsStatic() || g.GetStaticSize() >= g.GetSize() {
			continue
		}
		if counted == nil { // one listing covers all shards
			if counted, err = c.Counted(cmd.Context(), shards, group, false); err != nil {
				return nil, err
			}
		}
		line := fmt.Sprintf("%s/%s: size %d becomes the config's %d", g.Shard, g.GetKey(), g.GetSize(), g.GetStaticSize())
		if ids := counted[g.Shard+"/"+g.GetKey()]; len(ids) > int(g.GetStaticSize()) {
			line += fmt.Sprintf(", so %d of these are removed: %s", len(ids)-int(g.GetStaticSize()), admin.NameInstances(ids))
		}
		lines = append(lines, line)
	}
	return lines, nil
}
