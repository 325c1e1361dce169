package cli

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/spf13/cobra"
)

func (a *app) instance() *cobra.Command {
	return a.shardFlags(branch(&cobra.Command{Use: "instance", Short: "Instances: list, status, create, delete, drain, ack"},
		a.instanceList(), a.instanceStatus(), a.instanceCreate(), a.instanceDelete(), a.instanceDrain(), a.instanceAck()))
}

func instanceColumns(now time.Time) []column[admin.Instance] {
	return []column[admin.Instance]{
		{"SHARD", func(i admin.Instance) string { return i.Shard }},
		{"ID", func(i admin.Instance) string { return i.ID }},
		{"TENANT", func(i admin.Instance) string { return i.Tenant }},
		{"GROUP", func(i admin.Instance) string { return i.Group }},
		{"PHASE", func(i admin.Instance) string { return i.Phase }},
		{"CONNECTED", func(i admin.Instance) string { return strconv.FormatBool(i.Connected) }},
		{"AGE", func(i admin.Instance) string { return age(i.CreatedAt, now) }},
		{"PROVIDER ID", func(i admin.Instance) string { return i.ProviderID }},
		{"REASON", func(i admin.Instance) string { return cmp.Or(i.Reason, i.UnhealthyReason, i.LastError) }},
	}
}

func age(t *time.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	return now.Sub(*t).Round(time.Second).String()
}

func (a *app) instanceList() *cobra.Command {
	var group string
	var deleted bool
	cmd := &cobra.Command{Use: "list", Short: "List instances", Args: cobra.NoArgs}
	cmd.Flags().StringVar(&group, "group", "", "only this group")
	cmd.Flags().BoolVar(&deleted, "deleted", false, "tombstones too")
	columns := func() []column[admin.Instance] { return instanceColumns(a.env.Now()) }
	return list(a, cmd, columns, func(c *admin.Client, ctx context.Context, shards []client.Shard) ([]admin.Instance, error) {
		return c.ListInstances(ctx, shards, group, deleted)
	})
}

func (a *app) instanceStatus() *cobra.Command {
	cmd := &cobra.Command{Use: "status ID", Short: "Show one instance in full", Args: cobra.ExactArgs(1)}
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		if _, err := fleet.ParseID(args[0]); err != nil {
			return usageError{err}
		}
		client, shards, err := a.ask(a.target.read)
		if err != nil {
			return err
		}
		i, err := client.InstanceStatus(cmd.Context(), shards, args[0])
		if err != nil {
			return err
		}
		return printValue(cmd.OutOrStdout(), a.format, i)
	})
}
