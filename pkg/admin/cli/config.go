package cli

import (
	"context"
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
	return show(a, cmd, func(cmd *cobra.Command, _ []string) error {
		client, shards, err := a.connect(a.target.read)
		if err != nil {
			return err
		}
		all, err := client.ConfigStatus(cmd.Context(), shards)
		for _, c := range all {
			printOverrides(cmd.ErrOrStderr(), c.Shard, c.GetSizeOverrides())
			printDeleted(cmd.ErrOrStderr(), c.Shard, c.GetDeletedRecords())
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
		fmt.Fprintf(w, "%s: group %s/%s: size %d overrides the config's %d (%s)\n",
			shard, o.GetTenant(), o.GetGroup(), o.GetSize(), o.GetStaticSize(), dropping(shard, o))
	}
}

// dropping is how an override is dropped.
func dropping(shard string, o *nstancev1.SizeOverride) string {
	switch {
	case o.GetManager() != "":
		return "managed by " + o.GetManager()
	case o.GetTenant() != fleet.DefaultTenant:
		return fmt.Sprintf("nstance-admin group reset %s --shard %s, as an operator of tenant %s, drops it", o.GetGroup(), shard, o.GetTenant())
	default:
		return fmt.Sprintf("nstance-admin group reset %s --shard %s drops it", o.GetGroup(), shard)
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

// refreshFlags are the flags of config refresh.
type refreshFlags struct {
	yes, dry, wait bool
	accept         []string
}

func (a *app) configRefresh() *cobra.Command {
	cmd := &cobra.Command{
		Use: "refresh", Short: "Reload the config of shards", Args: cobra.NoArgs, Annotations: map[string]string{endless: "wait"},
		Long: "Reload the config of shards. An invalid config changes nothing, and all its violations\n" +
			"are listed.\n\n" +
			"A config that removes groups with instances, sets their size to 0, or sets it no more, needs\n" +
			"confirmation: " +
			"at the prompt on a terminal, otherwise with --yes, or --accept-removal with each group's name.\n\n" +
			"With --wait, the command ends when each group runs its size in instances of its present definition that have the newest\n" +
			"version of their files, and no others but draining ones. It has no time limit then, unless --timeout is given.",
	}
	var f refreshFlags
	yes := yesFlag(cmd)
	cmd.Flags().StringSliceVar(&f.accept, "accept-removal", nil,
		"`groups`, as tenant/group, that the config may remove with their instances")
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "show what would change, as config diff does, and change nothing")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until the config is rolled out")
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		f.yes = *yes
		if f.dry {
			if f.yes || f.wait || len(f.accept) > 0 {
				return usagef("--dry-run changes nothing: leave out --yes, --accept-removal and --wait")
			}
			return previewOf(a, cmd, nil)
		}
		return a.refresh(cmd, f)
	})
}

// refresh reloads the config of the selected shards.
func (a *app) refresh(cmd *cobra.Command, f refreshFlags) error {
	client, shards, err := a.connect(a.target.write)
	if err != nil {
		return err
	}
	if len(shards) > 1 && len(f.accept) > 0 {
		return usagef("--accept-removal: %.80q is a group of one shard: add --shard NAME", f.accept[0])
	}
	for _, name := range f.accept {
		if _, err := fleet.ParseGroupKey(name); err != nil {
			return usagef("--accept-removal: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout) // also if the wait has no end
	defer cancel()
	all, err := client.RefreshConfig(ctx, shards, f.accept, func(awaiting []admin.Refresh) error {
		goes, flags := removalLines(awaiting)
		return a.confirm(cmd, f.yes, goes, flags)
	})
	for _, r := range all {
		for _, v := range r.Violations {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s: %s\n", r.Shard, oneLine(v.Field), oneLine(v.Description))
		}
		printOverrides(cmd.ErrOrStderr(), r.Shard, r.SizeOverrides)
		if r.Preview != nil {
			printDeleted(cmd.ErrOrStderr(), r.Shard, r.Preview.GetDeletedRecords())
		}
	}
	if len(all) == 0 {
		return err
	}
	err = errors.Join(printAll(cmd.OutOrStdout(), a.format, all, refreshColumns()), printRefreshed(a, cmd, all), err)
	if f.wait {
		err = errors.Join(err, awaitRollouts(cmd, client, shards, all))
	}
	return err
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
