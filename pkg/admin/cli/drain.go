package cli

import (
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
		Use: "drain [-- COMMAND [ARG…]]", Short: "List what drains, or drain it with a command", Annotations: map[string]string{endless: "yes"},
		Long: "Without a command: list the instances that drain now and are not acknowledged yet.\n\n" +
			"With one: run it for every instance that begins to drain, with the instance's id as its last argument and NSTANCE_INSTANCE_ID,\n" +
			"NSTANCE_INSTANCE_HOSTNAME, NSTANCE_GROUP, NSTANCE_TENANT, NSTANCE_SHARD, NSTANCE_PROVIDER_ID and NSTANCE_DRAIN_REASON set. " +
			"When it succeeds the instance\n" +
			"is acknowledged and goes; when it fails it is run again until the instance's drain timeout.",
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().BoolVar(&once, "once", false, "end when everything that drains now is done")
	cmd.Flags().StringSliceVar(&only, "id", nil, "only these instance `ids`")
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		for _, id := range only {
			if _, err := fleet.ParseID(id); err != nil {
				return usagef("--id: %w", err)
			}
		}
		if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
			return usagef("the command %.40q comes after a double dash: instance drain -- COMMAND", args[0])
		}
		client, shards, err := a.ask(a.target.read)
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

// listDraining lists what drains and is not acknowledged, of those ids if there are
// any.
func (a *app) listDraining(cmd *cobra.Command, client *admin.Client, shards []client.Shard, only []string) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
	defer cancel()
	all, err := client.ListInstances(ctx, shards, "", false)
	draining := []admin.Instance{}
	for _, i := range all {
		asked := len(only) == 0 || slices.Contains(only, i.ID)
		if asked && i.Phase == "draining" && (i.Drain == nil || i.Drain.AckedAt == nil) {
			draining = append(draining, i)
		}
	}
	columns := append(instanceColumns(a.env.Now()), column[admin.Instance]{"GOES BY", func(i admin.Instance) string {
		if i.Drain == nil {
			return ""
		}
		return date(i.Drain.DeleteAt)
	}})
	return errors.Join(printAll(cmd.OutOrStdout(), a.format, draining, columns), err)
}

// drainCommand runs a program for an instance. What it prints goes to out.
func drainCommand(args []string, out io.Writer) func(context.Context, admin.Instance) error {
	return func(ctx context.Context, i admin.Instance) error {
		c := exec.CommandContext(ctx, args[0], slices.Concat(args[1:], []string{i.ID})...)
		c.Stdout, c.Stderr = out, out
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
		c.WaitDelay = drainKillDelay
		reason := i.Reason
		if i.Drain != nil {
			reason = i.Drain.Reason
		}
		c.Env = append(os.Environ(),
			"NSTANCE_INSTANCE_ID="+i.ID, "NSTANCE_INSTANCE_HOSTNAME="+i.Hostname, "NSTANCE_GROUP="+i.Group, "NSTANCE_TENANT="+i.Tenant,
			"NSTANCE_SHARD="+i.Shard, "NSTANCE_PROVIDER_ID="+i.ProviderID, "NSTANCE_DRAIN_REASON="+reason)
		if err := c.Run(); err != nil {
			return fmt.Errorf("run %s: %w", args[0], err)
		}
		return nil
	}
}

// drainKillDelay is how long a command may take to end once its instance is gone.
const drainKillDelay = 5 * time.Second

func printStep(w io.Writer, s admin.DrainStep) {
	i := s.Instance
	switch s.Step {
	case admin.DrainStarted:
		fmt.Fprintf(w, "%s/%s: draining %s\n", i.Shard, i.Group, i.ID)
	case admin.DrainAcknowledged:
		fmt.Fprintf(w, "%s/%s: %s is drained\n", i.Shard, i.Group, i.ID)
	default:
		fmt.Fprintf(w, "%s/%s: %s: %v\n", i.Shard, i.Group, i.ID, s.Err)
	}
}
