package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nstance/nstance/pkg/admin"
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
			if !c.RunningApplied {
				return ""
			}
			return fmt.Sprintf("it can't run (%d problems), the last accepted one does", len(c.Violations))
		}},
		{"NEEDS A RESTART", func(c admin.ConfigStatus) string { return strings.Join(c.RestartRequired, ", ") }},
	}
}

func (a *app) configStatus() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Show which config each shard runs", Args: cobra.NoArgs}
	return list(a, cmd, configColumns, (*admin.Client).ConfigStatus)
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
			"and everything that is wrong with it is listed.",
	}
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		client, shards, err := a.ask(a.target.write)
		if err != nil {
			return err
		}
		all, err := client.RefreshConfig(cmd.Context(), shards)
		for _, r := range all {
			for _, v := range r.Violations {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s: %s\n", r.Shard, v.Field, v.Description)
			}
		}
		if len(all) == 0 {
			return err
		}
		return errors.Join(printAll(cmd.OutOrStdout(), a.format, all, refreshColumns()), err)
	})
}
