package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
)

func (a *app) instanceDrain() *cobra.Command {
	var once bool
	var only []string
	cmd := &cobra.Command{
		Use: "drain [-- COMMAND [ARG…]]", Short: "List draining instances, or drain them with a command",
		Annotations: map[string]string{endless: "yes"},
		Long: "Without a command: list the draining instances that are not acknowledged yet.\n\n" +
			"With a command: run it for each draining instance, with the instance's ID as its last argument and NSTANCE_INSTANCE_ID,\n" +
			"NSTANCE_INSTANCE_HOSTNAME, NSTANCE_GROUP, NSTANCE_TENANT, NSTANCE_SHARD, NSTANCE_PROVIDER_ID and NSTANCE_DRAIN_REASON set. " +
			"When it succeeds, the instance\n" +
			"is acknowledged and deleted; when it fails, it is retried until the instance's drain timeout.",
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().BoolVar(&once, "once", false, "exit when all instances that are draining now are done")
	cmd.Flags().StringSliceVar(&only, "id", nil, "only these instance `ids`")
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		for _, id := range only {
			if _, err := fleet.ParseID(id); err != nil {
				return usagef("--id: %w", err)
			}
		}
		if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
			return usagef("put the command %.40q after a double dash: instance drain -- COMMAND", args[0])
		}
		client, shards, err := a.connect(a.target.read)
		if err != nil {
			return err
		}
		if len(args) == 0 {
			return a.listDraining(cmd, client, shards, only)
		}
		out := cmd.ErrOrStderr()
		return client.Drain(cmd.Context(), shards, admin.DrainConfig{
			Only: only, Once: once, Do: drainCommand(args, out), Report: func(s admin.DrainStep) { printStep(out, s) },
		})
	})
}

// listDraining lists the draining instances that are not acknowledged, restricted to the given
// IDs if there are any.
func (a *app) listDraining(cmd *cobra.Command, client *admin.Client, shards []client.Shard, only []string) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
	defer cancel()
	all, err := client.ListInstances(ctx, shards, "", false)
	draining := []admin.Instance{}
	for _, i := range all {
		if asked := len(only) == 0 || slices.Contains(only, i.GetId()); asked && i.Drains() {
			draining = append(draining, i)
		}
	}
	by := func(i admin.Instance) string { return date(i.GetDrain().GetDeleteAt()) }
	columns := append(instanceColumns(a.env.Now()), column[admin.Instance]{"GOES BY", by})
	return errors.Join(printAll(cmd.OutOrStdout(), a.format, draining, columns), err)
}

// drainCommand returns a drain function that runs a program and copies its output to out.
func drainCommand(args []string, out io.Writer) func(context.Context, admin.Instance) error {
	return func(ctx context.Context, i admin.Instance) error {
		c := exec.CommandContext(ctx, args[0], slices.Concat(args[1:], []string{i.GetId()})...)
		c.Stdout, c.Stderr = out, out
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
		c.WaitDelay = drainKillDelay
		c.Env = append(os.Environ(),
			"NSTANCE_INSTANCE_ID="+i.GetId(), "NSTANCE_INSTANCE_HOSTNAME="+i.GetHostname(), "NSTANCE_GROUP="+i.GetGroup(),
			"NSTANCE_TENANT="+i.GetTenant(), "NSTANCE_SHARD="+i.Shard, "NSTANCE_PROVIDER_ID="+i.GetProviderId(),
			"NSTANCE_DRAIN_REASON="+cmp.Or(i.GetDrain().GetReason(), i.GetReason()))
		if err := c.Run(); err != nil {
			return fmt.Errorf("run %s: %w", args[0], err)
		}
		return nil
	}
}

// drainKillDelay is how long a command may take to exit once its instance is gone.
const drainKillDelay = 5 * time.Second

func printStep(w io.Writer, s admin.DrainStep) {
	i := s.Instance
	switch s.Step {
	case admin.DrainStarted:
		fmt.Fprintf(w, "%s/%s: draining %s\n", i.Shard, i.GetGroup(), i.GetId())
	case admin.DrainAcknowledged:
		fmt.Fprintf(w, "%s/%s: %s is drained\n", i.Shard, i.GetGroup(), i.GetId())
	default:
		fmt.Fprintf(w, "%s/%s: %s: %v\n", i.Shard, i.GetGroup(), i.GetId(), oneLine(s.Err.Error()))
	}
}
