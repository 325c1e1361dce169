package cli

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func (a *app) instance() *cobra.Command {
	return a.shardFlags(branch(&cobra.Command{Use: "instance", Short: "Instances: list, status, create, delete, drain, ack"},
		a.instanceList(), a.instanceStatus(), a.instanceCreate(), a.instanceDelete(), a.instanceDrain(), a.instanceAck()))
}

func instanceColumns(now time.Time) []column[admin.Instance] {
	return []column[admin.Instance]{
		{"SHARD", func(i admin.Instance) string { return i.Shard }},
		{"ID", func(i admin.Instance) string { return i.GetId() }},
		{"TENANT", func(i admin.Instance) string { return i.GetTenant() }},
		{"GROUP", func(i admin.Instance) string { return i.GetGroup() }},
		{"PHASE", func(i admin.Instance) string { return phase(i) }},
		{"CONNECTED", func(i admin.Instance) string { return strconv.FormatBool(i.GetConnected()) }},
		{"AGE", func(i admin.Instance) string { return age(i.GetCreatedAt(), now) }},
		{"PROVIDER ID", func(i admin.Instance) string { return i.GetProviderId() }},
		{"REASON", func(i admin.Instance) string { return cmp.Or(i.GetReason(), i.GetUnhealthyReason(), i.GetLastError()) }},
	}
}

// phase returns an instance's phase as people write it.
func phase(i admin.Instance) string {
	return strings.ToLower(strings.TrimPrefix(i.GetPhase().String(), "INSTANCE_PHASE_"))
}

func age(t *timestamppb.Timestamp, now time.Time) string {
	if t == nil {
		return ""
	}
	return now.Sub(t.AsTime()).Round(time.Second).String()
}

func (a *app) instanceList() *cobra.Command {
	var group string
	var deleted bool
	cmd := listing(&cobra.Command{Use: "list", Short: "List instances", Args: cobra.NoArgs}, "ID")
	cmd.Flags().StringVar(&group, "group", "", "only this group")
	cmd.Flags().BoolVar(&deleted, "deleted", false, "include tombstones")
	columns := func() []column[admin.Instance] { return instanceColumns(a.env.Now()) }
	return listEach(a, cmd, columns, func(c *admin.Client, ctx context.Context, shards []client.Shard) ([]admin.Instance, error) {
		return c.ListInstances(ctx, shards, group, deleted)
	}, func(c *admin.Client, ctx context.Context, shards []client.Shard) error {
		if group == "" {
			return nil
		}
		_, err := c.GroupStatus(ctx, shards, group) // a mistyped name is no empty group
		return err
	})
}

func (a *app) instanceStatus() *cobra.Command {
	cmd := &cobra.Command{Use: "status ID", Short: "Show one instance in detail", Args: cobra.ExactArgs(1)}
	return show(a, cmd, func(cmd *cobra.Command, args []string) error {
		if _, err := fleet.ParseID(args[0]); err != nil {
			return usageError{err}
		}
		client, shards, err := a.connect(a.target.read)
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
