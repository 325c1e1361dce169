package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	"github.com/spf13/cobra"
)

func (a *app) group() *cobra.Command {
	return a.shardFlags(branch(&cobra.Command{
		Use: "group", Short: "Groups: list, status, explain, scale, create, on-demand, rollout, delete, reset",
	}, a.groupList(), a.groupStatus(), groupExplain(a), a.groupScale(), a.groupCreate(), groupOnDemand(a), groupRollout(a), a.groupDelete(),
		a.groupReset()))
}

func groupColumns() []column[admin.Group] {
	number := func(n int32) string { return strconv.Itoa(int(n)) }
	return []column[admin.Group]{
		{"SHARD", func(g admin.Group) string { return g.Shard }},
		{"TENANT", func(g admin.Group) string { return g.GetTenant() }},
		{"GROUP", func(g admin.Group) string { return g.GetKey() }},
		{"SIZE", shownSize},
		{"ACTUAL", func(g admin.Group) string { return number(g.GetActualSize()) }},
		{"PENDING", func(g admin.Group) string { return number(g.GetPendingSize()) }},
		{"DRAINING", func(g admin.Group) string { return number(g.GetDrainingSize()) }},
		{"TEMPLATE", func(g admin.Group) string { return g.GetTemplate() }},
		{"TYPE", func(g admin.Group) string { return g.GetInstanceType() }},
		{"STATIC", func(g admin.Group) string { return strconv.FormatBool(g.GetIsStatic()) }},
		{"MANAGED BY", func(g admin.Group) string { return g.GetManager() }},
		{"CONDITIONS", conditions},
	}
}

// shownSize formats a group's size, with the static config's size if it differs.
func shownSize(g admin.Group) string {
	if g.GetIsStatic() && g.GetSize() != g.GetStaticSize() {
		return fmt.Sprintf("%d (config: %d)", g.GetSize(), g.GetStaticSize())
	}
	return strconv.Itoa(int(g.GetSize()))
}

func conditions(g admin.Group) string {
	var out []string
	for _, c := range g.GetConditions() {
		if c.GetMessage() != "" {
			out = append(out, c.GetType()+": "+c.GetMessage())
		}
	}
	return strings.Join(out, "; ")
}

func (a *app) groupList() *cobra.Command {
	cmd := listing(&cobra.Command{Use: "list", Short: "List the groups of all shards", Args: cobra.NoArgs}, "GROUP")
	return listEach(a, cmd, groupColumns, func(c *admin.Client, ctx context.Context, shards []client.Shard) ([]admin.Group, error) {
		all := a.format != formatTable // which has neither instances nor vars
		return c.ListGroups(ctx, shards, client.Parts{Instances: all, Vars: all})
	}, nil)
}

// listGroups returns what lists groups with those parts.
func listGroups(with client.Parts) func(*admin.Client, context.Context, []client.Shard) ([]admin.Group, error) {
	return func(c *admin.Client, ctx context.Context, shards []client.Shard) ([]admin.Group, error) {
		return c.ListGroups(ctx, shards, with)
	}
}

func (a *app) groupStatus() *cobra.Command {
	cmd := &cobra.Command{Use: "status GROUP", Short: "Show one group in detail", Args: cobra.ExactArgs(1)}
	return show(a, cmd, func(cmd *cobra.Command, args []string) error {
		client, shards, err := a.connect(a.target.read)
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
		Use: "delete GROUP", Short: "Scale a dynamic group to zero and delete it", Args: cobra.ExactArgs(1),
		Long: "Scale a dynamic group to zero and delete it, including its on-demand instances.\n\n" +
			"If it has instances, the command prompts on a terminal; otherwise it needs --yes.",
	}
	yes, force := yesFlag(cmd), forceFlag(cmd)
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		client, shards, err := a.connect(a.target.write)
		if err != nil {
			return err
		}
		if err := a.confirmGroup(cmd, *yes, client, shards, args[0], true); err != nil {
			return err
		}
		deleting, err := client.DeleteGroup(cmd.Context(), shards, args[0], *force)
		if len(deleting) == 0 {
			return err
		}
		words := fmt.Sprintf("group %s is being deleted in %s", args[0], strings.Join(deleting, ", "))
		return errors.Join(a.done(cmd.OutOrStdout(), words, map[string]any{"key": args[0], "deleting_in": deleting}), err)
	})
}
