package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
)

func (a *app) instanceCreate() *cobra.Command {
	var n admin.NewInstance
	var vars string
	cmd := &cobra.Command{
		Use: "create GROUP", Short: "Create an on-demand instance, which its group does not count", Args: cobra.ExactArgs(1),
		Long: "Create an on-demand instance of a group's making, which the group neither counts nor scales.\n\n" +
			"The same --key names the same instance for ever, unless no machine could be made for that,\n" +
			"so that a command whose answer got lost can be repeated.\n" +
			"Without it one is made up, and printed.",
	}
	cmd.Flags().StringVar(&n.Key, "key", "", "idempotency `key`")
	cmd.Flags().StringVar(&n.InstanceType, "instance-type", "", "instance type, instead of the group's")
	cmd.Flags().StringVar(&vars, "vars", "", "vars over the group's, as a JSON object")
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		n.Group = args[0]
		if vars != "" {
			if err := json.Unmarshal([]byte(vars), &n.Vars); err != nil {
				return usagef("--vars: %.80q is not a JSON object: %w", vars, err)
			}
		}
		client, shards, err := a.ask(a.target.write)
		if err != nil {
			return err
		}
		if len(shards) > 1 {
			return usagef("an instance is created in one shard: say --shard NAME")
		}
		if n.Key == "" {
			key, err := fleet.NewID("key", a.env.Now(), a.env.Random)
			if err != nil {
				return err
			}
			n.Key = string(key)
			fmt.Fprintf(cmd.ErrOrStderr(), "idempotency key: %s\n", n.Key)
		}
		i, err := client.CreateInstance(cmd.Context(), shards[0], n)
		if err != nil {
			return err
		}
		return printAll(cmd.OutOrStdout(), a.format, []admin.Instance{i}, instanceColumns(a.env.Now()))
	})
}

func (a *app) instanceDelete() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use: "delete ID | --key KEY", Short: "Delete an on-demand instance; have a managed one replaced", Args: cobra.MaximumNArgs(1),
		Long: "Delete an on-demand instance, by its id or by the idempotency key that it was created with.\n\n" +
			"A group goes on to want as many as before, so one of its own is replaced: first the new one, then the drain of the old.\n" +
			"`group scale GROUP SIZE --remove ID` makes the group smaller by exactly this instance.",
	}
	cmd.Flags().StringVar(&key, "key", "", "idempotency `key` of an on-demand instance, instead of its id")
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		if (len(args) == 1) == (key != "") {
			return usagef("want an instance id or --key, one of the two")
		}
		if key != "" {
			client, shards, err := a.ask(a.target.write)
			if err != nil {
				return err
			}
			shard, err := client.DeleteInstanceByKey(cmd.Context(), shards, key)
			if err != nil {
				return err
			}
			return a.done(cmd.OutOrStdout(), fmt.Sprintf("the instance of key %s is being deleted in %s", key, shard),
				map[string]any{"key": key, "shard": shard})
		}
		return a.toInstance(cmd, args[0], (*admin.Client).DeleteInstance, "instance %s is being deleted or replaced in %s")
	})
}

func (a *app) instanceAck() *cobra.Command {
	cmd := &cobra.Command{Use: "ack ID", Short: "Say that nothing is left on a draining instance", Args: cobra.ExactArgs(1)}
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		return a.toInstance(cmd, args[0], (*admin.Client).AcknowledgeDrained, "instance %s is acknowledged in %s, and goes now")
	})
}

// toInstance does something to the one instance of an id, in whichever shard has
// it; words say so of the id and the shard.
func (a *app) toInstance(
	cmd *cobra.Command, id string, do func(*admin.Client, context.Context, []client.Shard, string) (string, error), words string,
) error {
	if _, err := fleet.ParseID(id); err != nil {
		return usageError{err}
	}
	client, shards, err := a.ask(a.target.read)
	if err != nil {
		return err
	}
	shard, err := do(client, cmd.Context(), shards, id)
	if err != nil {
		return err
	}
	return a.done(cmd.OutOrStdout(), fmt.Sprintf(words, id, shard), map[string]any{"id": id, "shard": shard})
}
