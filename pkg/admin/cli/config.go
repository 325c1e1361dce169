package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/spf13/cobra"
)

func (a *app) config() *cobra.Command {
	return a.shardFlags(branch(&cobra.Command{Use: "config", Short: "Static config: status, refresh, validate"},
		a.configStatus(), a.configRefresh(), a.configValidate()))
}

func configColumns() []column[admin.ConfigStatus] {
	return []column[admin.ConfigStatus]{
		{"SHARD", func(c admin.ConfigStatus) string { return c.Shard }},
		{"ETAG", func(c admin.ConfigStatus) string { return c.ETag }},
		{"LAST MODIFIED", func(c admin.ConfigStatus) string { return date(c.LastModified) }},
		{"SIZE", func(c admin.ConfigStatus) string { return strconv.FormatInt(c.Size, 10) }},
		{"PROBLEMS", func(c admin.ConfigStatus) string {
			switch {
			case !c.RunningApplied:
				return ""
			case len(c.AwaitsConfirmation) > 0:
				return "it awaits confirmation, since it takes away " + removed(c.AwaitsConfirmation) + "; the last accepted one runs"
			}
			return fmt.Sprintf("it can't run (%d problems), the last accepted one does", len(c.Violations))
		}},
		{"NEEDS A RESTART", func(c admin.ConfigStatus) string { return strings.Join(c.RestartRequired, ", ") }},
	}
}

func removed(all []admin.GroupRemoval) string {
	var parts []string
	for _, r := range all {
		parts = append(parts, fmt.Sprintf("%s/%s (%d)", r.Tenant, r.Group, r.Instances))
	}
	return strings.Join(parts, ", ")
}

func (a *app) configStatus() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Show which config each shard runs", Args: cobra.NoArgs}
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		client, shards, err := a.ask(a.target.read)
		if err != nil {
			return err
		}
		all, err := client.ConfigStatus(cmd.Context(), shards)
		for _, c := range all {
			printOverrides(cmd.ErrOrStderr(), c.Shard, c.SizeOverrides)
		}
		return errors.Join(printAll(cmd.OutOrStdout(), a.format, all, configColumns()), err)
	})
}

// printOverrides prints a line for each size that hides the static config's.
func printOverrides(w io.Writer, shard string, all []admin.SizeOverride) {
	for _, o := range all {
		as := ""
		if o.Tenant != fleet.DefaultTenant {
			as = ", run by an operator of tenant " + o.Tenant + ","
		}
		fmt.Fprintf(w, "%s: group %s/%s: size %d overrides the config's %d (nstance-admin group reset %s --shard %s%s drops it)\n",
			shard, o.Tenant, o.Group, o.Size, o.StaticSize, o.Group, shard, as)
	}
}

func (a *app) configValidate() *cobra.Command {
	cmd := &cobra.Command{Use: "validate FILE", Short: "Check a config file as a server would, without one", Args: cobra.ExactArgs(1)}
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		if _, err := readConfig(args[0]); err != nil {
			return err
		}
		return a.done(cmd.OutOrStdout(), args[0]+" is valid", map[string]any{"file": args[0], "valid": true})
	})
}

func refreshColumns() []column[admin.Refresh] {
	return []column[admin.Refresh]{
		{"SHARD", func(r admin.Refresh) string { return r.Shard }},
		{"OUTCOME", func(r admin.Refresh) string { return r.Outcome }},
		{"ETAG", func(r admin.Refresh) string { return r.ETag }},
		{"NEEDS A RESTART", func(r admin.Refresh) string { return strings.Join(r.RestartRequired, ", ") }},
	}
}

func (a *app) configRefresh() *cobra.Command {
	cmd := &cobra.Command{
		Use: "refresh", Short: "Have shards read their config again", Args: cobra.NoArgs,
		Long: "Have shards read their config again and run it when it is valid. One that is not valid changes nothing,\n" +
			"and everything that is wrong with it is listed.\n\n" +
			"One that takes away groups with instances, or sets their size to 0, is run only when that is confirmed:\n" +
			"on a terminal when asked, elsewhere by --yes, or by --accept-removal with each group's name.",
	}
	yes := yesFlag(cmd)
	accept := cmd.Flags().StringSlice("accept-removal", nil, "`groups`, as tenant/group, that the config may take away with their instances")
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		client, shards, err := a.ask(a.target.write)
		if err != nil {
			return err
		}
		if len(shards) > 1 && len(*accept) > 0 {
			return usagef("--accept-removal: %.80q is a group of one shard: say --shard NAME", (*accept)[0])
		}
		for _, name := range *accept {
			if _, err := fleet.ParseGroupKey(name); err != nil {
				return usagef("--accept-removal: %w", err)
			}
		}
		all, err := client.RefreshConfig(cmd.Context(), shards, *accept, func(awaiting []admin.Refresh) error {
			goes, flags := removalLines(awaiting)
			return a.confirm(cmd, *yes, goes, flags)
		})
		for _, r := range all {
			for _, v := range r.Violations {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s: %s\n", r.Shard, v.Field, v.Description)
			}
			printOverrides(cmd.ErrOrStderr(), r.Shard, r.SizeOverrides)
		}
		if len(all) == 0 {
			return err
		}
		return errors.Join(printAll(cmd.OutOrStdout(), a.format, all, refreshColumns()), err)
	})
}

// removalLines says what configs take away, and the flags by which one shard's is accepted.
func removalLines(awaiting []admin.Refresh) (goes []string, flags string) {
	for _, r := range awaiting {
		for _, removal := range r.Removals {
			goes = append(goes, fmt.Sprintf("%s: group %s: %s", r.Shard, removal.Group, removal.Description))
			flags += " --accept-removal " + removal.Group
		}
	}
	if len(awaiting) > 1 {
		flags = ""
	}
	return goes, strings.TrimSpace(flags)
}
