package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	shardconfig "github.com/nstance/nstance/pkg/config"
	"github.com/spf13/cobra"
)

func (a *app) config() *cobra.Command {
	return a.shardFlags(a.branch(&cobra.Command{Use: "config", Short: "Static config: status, validate"}, a.configStatus(), a.configValidate()))
}

func configColumns() []column[admin.ConfigStatus] {
	return []column[admin.ConfigStatus]{
		{"SHARD", func(c admin.ConfigStatus) string { return c.Shard }},
		{"ETAG", func(c admin.ConfigStatus) string { return c.ETag }},
		{"LAST MODIFIED", func(c admin.ConfigStatus) string {
			if c.LastModified == nil {
				return ""
			}
			return c.LastModified.Format(time.RFC3339)
		}},
		{"SIZE", func(c admin.ConfigStatus) string { return strconv.FormatInt(c.Size, 10) }},
		{"PROBLEMS", func(c admin.ConfigStatus) string {
			if !c.RunningApplied {
				return ""
			}
			return fmt.Sprintf("it can't run (%d problems), the last accepted one does", len(c.Violations))
		}},
	}
}

func (a *app) configStatus() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Show which config each shard runs", Args: cobra.NoArgs}
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		client, shards, err := a.ask(a.readShards)
		if err != nil {
			return err
		}
		statuses, err := client.ConfigStatus(cmd.Context(), shards)
		return errors.Join(printAll(cmd.OutOrStdout(), a.format, statuses, configColumns()), err)
	})
}

func (a *app) configValidate() *cobra.Command {
	cmd := &cobra.Command{Use: "validate FILE", Short: "Check a config file as a server would, without one", Args: cobra.ExactArgs(1)}
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		body, err := os.ReadFile(args[0])
		if err != nil {
			return usagef("read config: %w", err)
		}
		if _, err := shardconfig.Parse(body); err != nil {
			return fmt.Errorf("%s is not valid:\n%w", args[0], err)
		}
		return a.done(cmd.OutOrStdout(), args[0]+" is valid", map[string]any{"file": args[0], "valid": true})
	})
}
