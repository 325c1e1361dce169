package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/spf13/cobra"
)

func (a *app) operator() *cobra.Command {
	return a.shardFlags(branch(&cobra.Command{Use: "operator", Short: "Operators of the cluster: list, remove"},
		a.operatorList(), a.operatorRemove()))
}

func operatorColumns() []column[admin.Operator] {
	return []column[admin.Operator]{
		{"ID", func(o admin.Operator) string { return o.GetId() }},
		{"TENANT", func(o admin.Operator) string { return o.GetTenant() }},
		{"REGISTERED", func(o admin.Operator) string { return date(o.GetRegisteredAt()) }},
		{"CONNECTED TO", func(o admin.Operator) string { return strings.Join(o.ConnectedTo, ", ") }},
		{"REMOVED", func(o admin.Operator) string { return date(o.GetRemovedAt()) }},
		{"REMOVED BY", func(o admin.Operator) string { return o.GetRemovedBy() }},
	}
}

func (a *app) operatorList() *cobra.Command {
	var removed bool
	cmd := listing(&cobra.Command{Use: "list", Short: "List the tenant's operators of the whole cluster", Args: cobra.NoArgs}, "ID")
	cmd.Flags().BoolVar(&removed, "removed", false, "include removed operators")
	return list(a, cmd, operatorColumns, func(c *admin.Client, ctx context.Context, shards []client.Shard) ([]admin.Operator, error) {
		return c.ListOperators(ctx, shards, removed)
	})
}

func (a *app) operatorRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use: "remove ID", Short: "Revoke an operator permanently", Args: cobra.ExactArgs(1),
		Long: "Revoke an operator permanently: its certificates are refused, its streams are closed, its registration nonce is used up.\n\n" +
			"The shards of --servers refuse it at once; shards that can't be reached do so within about a minute.\n" +
			"Any operator of your tenant can be removed, including your own identity: `cluster register-operator` creates a new one.",
	}
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		if id, err := fleet.ParseID(args[0]); err != nil || id.Kind() != fleet.OperatorKind {
			return usagef("%.80q is not an operator ID: `nstance-admin operator list` lists them", args[0])
		}
		client, shards, err := a.connect(a.target.every)
		if err != nil {
			return err
		}
		in, err := client.RemoveOperator(cmd.Context(), shards, args[0])
		if len(in) == 0 {
			return err
		}
		if err != nil {
			err = fmt.Errorf("%w\nthe operator is removed: the shards that could not be called refuse it within about a minute", err)
		}
		words := fmt.Sprintf("operator %s is removed and refused by %s", args[0], strings.Join(in, ", "))
		return errors.Join(a.done(cmd.OutOrStdout(), words, map[string]any{"id": args[0], "refused_by": in}), err)
	})
}
