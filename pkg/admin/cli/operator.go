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
		{"ID", func(o admin.Operator) string { return o.ID }},
		{"TENANT", func(o admin.Operator) string { return o.Tenant }},
		{"REGISTERED", func(o admin.Operator) string { return date(o.RegisteredAt) }},
		{"CONNECTED TO", func(o admin.Operator) string { return strings.Join(o.ConnectedTo, ", ") }},
		{"REMOVED", func(o admin.Operator) string { return date(o.RemovedAt) }},
		{"REMOVED BY", func(o admin.Operator) string { return o.RemovedBy }},
	}
}

func (a *app) operatorList() *cobra.Command {
	var removed bool
	cmd := &cobra.Command{Use: "list", Short: "List the tenant's operators, of the whole cluster", Args: cobra.NoArgs}
	cmd.Flags().BoolVar(&removed, "removed", false, "those that were removed too")
	return list(a, cmd, operatorColumns, func(c *admin.Client, ctx context.Context, shards []client.Shard) ([]admin.Operator, error) {
		return c.ListOperators(ctx, shards, removed)
	})
}

func (a *app) operatorRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use: "remove ID", Short: "End an operator's power for good", Args: cobra.ExactArgs(1),
		Long: "End an operator's power for good: its certificates are refused, its streams end, its registration nonce is spent.\n\n" +
			"All shards of --servers are asked, so that they refuse it at once; those that can't be reached do within about a minute.\n" +
			"You may remove any operator of your tenant, your own identity too: `cluster register-operator` makes another one.",
	}
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		if id, err := fleet.ParseID(args[0]); err != nil || id.Kind() != fleet.OperatorKind {
			return usagef("%.80q is not the id of an operator: `nstance-admin operator list` shows them", args[0])
		}
		client, shards, err := a.ask(a.target.every)
		if err != nil {
			return err
		}
		in, err := client.RemoveOperator(cmd.Context(), shards, args[0])
		if len(in) == 0 {
			return err
		}
		if err != nil {
			err = fmt.Errorf("%w\nthe operator is removed: a shard that could not be reached notices it within about a minute, "+
				"one that does not know this call, being of an older version, never", err)
		}
		words := fmt.Sprintf("operator %s is removed, and refused from now on by %s", args[0], strings.Join(in, ", "))
		return errors.Join(a.done(cmd.OutOrStdout(), words, map[string]any{"id": args[0], "refused_by": in}), err)
	})
}
