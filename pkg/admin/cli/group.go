package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/spf13/cobra"
)

func (a *app) group() *cobra.Command {
	return a.shardFlags(branch(&cobra.Command{Use: "group", Short: "Groups: list, status, scale, create, delete, reset"},
		a.groupList(), a.groupStatus(), a.groupScale(), a.groupCreate(), a.groupDelete(), a.groupReset()))
}

func groupColumns() []column[admin.Group] {
	number := func(n int32) string { return strconv.Itoa(int(n)) }
	return []column[admin.Group]{
		{"SHARD", func(g admin.Group) string { return g.Shard }},
		{"TENANT", func(g admin.Group) string { return g.Tenant }},
		{"GROUP", func(g admin.Group) string { return g.Key }},
		{"SIZE", shownSize},
		{"ACTUAL", func(g admin.Group) string { return number(g.ActualSize) }},
		{"PENDING", func(g admin.Group) string { return number(g.PendingSize) }},
		{"DRAINING", func(g admin.Group) string { return number(g.DrainingSize) }},
		{"TEMPLATE", func(g admin.Group) string { return g.Template }},
		{"TYPE", func(g admin.Group) string { return g.InstanceType }},
		{"STATIC", func(g admin.Group) string { return strconv.FormatBool(g.IsStatic) }},
		{"CONDITIONS", conditions},
	}
}

// shownSize is a group's size, and the static config's where that is another.
func shownSize(g admin.Group) string {
	if g.IsStatic && g.Size != g.StaticSize {
		return fmt.Sprintf("%d (config: %d)", g.Size, g.StaticSize)
	}
	return strconv.Itoa(int(g.Size))
}

func conditions(g admin.Group) string {
	var out []string
	for _, c := range g.Conditions {
		if c.Message != "" {
			out = append(out, c.Type+": "+c.Message)
		}
	}
	return strings.Join(out, "; ")
}

func (a *app) groupList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the groups of all shards", Args: cobra.NoArgs}
	return list(a, cmd, groupColumns, (*admin.Client).ListGroups)
}

func (a *app) groupStatus() *cobra.Command {
	cmd := &cobra.Command{Use: "status GROUP", Short: "Show one group in full", Args: cobra.ExactArgs(1)}
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		client, shards, err := a.ask(a.target.read)
		if err != nil {
			return err
		}
		groups, err := client.GroupStatus(cmd.Context(), shards, args[0])
		if len(groups) > 0 {
			err = errors.Join(printValue(cmd.OutOrStdout(), a.format, groups), err)
		}
		return err
	})
}

func (a *app) groupDelete() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete GROUP", Short: "Scale a dynamic group to zero and forget it", Args: cobra.ExactArgs(1),
		Long: "Scale a dynamic group to zero and forget it, its on-demand instances included.\n\n" +
			"While it has instances, on a terminal it is asked first; elsewhere it needs --yes.",
	}
	yes := yesFlag(cmd)
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		client, shards, err := a.ask(a.target.write)
		if err != nil {
			return err
		}
		if err := a.confirmGroup(cmd, *yes, client, shards, args[0], true); err != nil {
			return err
		}
		deleting, err := client.DeleteGroup(cmd.Context(), shards, args[0])
		if len(deleting) == 0 {
			return err
		}
		words := fmt.Sprintf("group %s is being deleted in %s", args[0], strings.Join(deleting, ", "))
		return errors.Join(a.done(cmd.OutOrStdout(), words, map[string]any{"key": args[0], "deleting_in": deleting}), err)
	})
}
