package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"github.com/spf13/cobra"
)

func (a *app) config() *cobra.Command {
	return a.shardFlags(branch(&cobra.Command{Use: "config", Short: "Static config: status, diff, refresh, validate"},
		a.configStatus(), configDiff(a), a.configRefresh(), configValidate(a)))
}

func configColumns() []column[admin.ConfigStatus] {
	return []column[admin.ConfigStatus]{
		{"SHARD", func(c admin.ConfigStatus) string { return c.Shard }},
		{"ETAG", func(c admin.ConfigStatus) string { return c.GetEtag() }},
		{"LAST MODIFIED", func(c admin.ConfigStatus) string { return date(c.GetLastModified()) }},
		{"SIZE", func(c admin.ConfigStatus) string { return strconv.FormatInt(c.GetSize(), 10) }},
		{"PROBLEMS", func(c admin.ConfigStatus) string {
			switch {
			case !c.GetRunningApplied():
				return ""
			case len(c.GetAwaitsConfirmation()) > 0:
				return "awaiting confirmation to remove " + removed(c.GetAwaitsConfirmation()) + "; the last accepted config stays active"
			}
			return fmt.Sprintf("invalid (%d problems); the last accepted config stays active", len(c.GetViolations()))
		}},
		{"NEEDS A RESTART", func(c admin.ConfigStatus) string { return strings.Join(c.GetRestartRequired(), ", ") }},
	}
}

func removed(all []*nstancev1.GroupRemoval) string {
	var parts []string
	for _, r := range all {
		parts = append(parts, fmt.Sprintf("%s/%s (%d)", r.GetTenant(), r.GetGroup(), r.GetInstances()))
	}
	return strings.Join(parts, ", ")
}

func (a *app) configStatus() *cobra.Command {
	cmd := listing(&cobra.Command{Use: "status", Short: "Show which config each shard runs", Args: cobra.NoArgs}, "SHARD")
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		client, shards, err := a.connect(a.target.read)
		if err != nil {
			return err
		}
		all, err := client.ConfigStatus(cmd.Context(), shards)
		for _, c := range all {
			printOverrides(cmd.ErrOrStderr(), c.Shard, c.GetSizeOverrides())
			for _, s := range c.GetShrunk() {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: group %s/%s: the running config made it smaller, from %d to %d\n",
					c.Shard, s.GetTenant(), s.GetGroup(), s.GetSizeBefore(), s.GetSize())
			}
		}
		return errors.Join(printAll(cmd.OutOrStdout(), a.format, all, configColumns()), err)
	})
}

// printOverrides prints a line for each size override of the static config.
func printOverrides(w io.Writer, shard string, all admin.SizeOverrides) {
	for _, o := range all {
		as := ""
		if o.GetTenant() != fleet.DefaultTenant {
			as = ", as an operator of tenant " + o.GetTenant() + ","
		}
		fmt.Fprintf(w, "%s: group %s/%s: size %d overrides the config's %d (nstance-admin group reset %s --shard %s%s drops it)\n",
			shard, o.GetTenant(), o.GetGroup(), o.GetSize(), o.GetStaticSize(), o.GetGroup(), shard, as)
	}
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
		Use: "refresh", Short: "Reload the config of shards", Args: cobra.NoArgs,
		Long: "Reload the config of shards. An invalid config changes nothing, and all its violations\n" +
			"are listed.\n\n" +
			"A config that removes groups with instances, sets their size to 0, or sets it no more, needs\n" +
			"confirmation: " +
			"at the prompt on a terminal, otherwise with --yes, or --accept-removal with each group's name.",
	}
	yes := yesFlag(cmd)
	accept := cmd.Flags().StringSlice("accept-removal", nil, "`groups`, as tenant/group, that the config may remove with their instances")
	dry := cmd.Flags().Bool("dry-run", false, "show what would change, as config diff does, and change nothing")
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		if *dry {
			if *yes || len(*accept) > 0 {
				return usagef("--dry-run confirms nothing: leave out --yes and --accept-removal")
			}
			return previewOf(a, cmd, nil)
		}
		client, shards, err := a.connect(a.target.write)
		if err != nil {
			return err
		}
		if len(shards) > 1 && len(*accept) > 0 {
			return usagef("--accept-removal: %.80q is a group of one shard: add --shard NAME", (*accept)[0])
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
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s: %s\n", r.Shard, oneLine(v.Field), oneLine(v.Description))
			}
			printOverrides(cmd.ErrOrStderr(), r.Shard, r.SizeOverrides)
		}
		if len(all) == 0 {
			return err
		}
		return errors.Join(printAll(cmd.OutOrStdout(), a.format, all, refreshColumns()), printRefreshed(a, cmd, all), err)
	})
}

// removalLines describes the removals that await confirmation, and returns the flags that
// accept them if they are of one shard.
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
