package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func (a *app) instanceCreate() *cobra.Command {
	var req nstancev1.CreateInstanceRequest
	var instanceType, vars string
	cmd := &cobra.Command{
		Use: "create GROUP", Short: "Create an on-demand instance, outside of the group's size", Args: cobra.ExactArgs(1),
		Long: "Create an on-demand instance from a group's template. It does not count towards the group's size.\n\n" +
			"--key makes the command idempotent: a repeated key returns the same instance, unless creating its\n" +
			"machine failed.\n" +
			"Without --key a random key is generated and printed.",
	}
	cmd.Flags().StringVar(&req.IdempotencyKey, "key", "", "idempotency `key`")
	cmd.Flags().StringVar(&instanceType, "instance-type", "", "instance type, overriding the group's")
	cmd.Flags().StringVar(&vars, "vars", "", "vars that override the group's, as a JSON object")
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		var err error
		if req.Vars, err = parseVars(vars); err != nil {
			return err
		}
		req.Group = args[0]
		if instanceType != "" {
			req.InstanceType = &instanceType
		}
		client, shards, err := a.connect(a.target.write)
		if err != nil {
			return err
		}
		if len(shards) > 1 {
			return usagef("an instance is created in one shard: add --shard NAME")
		}
		if req.IdempotencyKey == "" {
			key, err := fleet.NewID("key", a.env.Now(), a.env.Random)
			if err != nil {
				return err
			}
			req.IdempotencyKey = string(key)
			fmt.Fprintf(cmd.ErrOrStderr(), "idempotency key: %s\n", key)
		}
		i, err := client.CreateInstance(cmd.Context(), shards[0], &req)
		if err != nil {
			return err
		}
		return printAll(cmd.OutOrStdout(), a.format, []admin.Instance{i}, instanceColumns(a.env.Now()))
	})
}

// parseVars parses vars given as a JSON object; empty: none.
func parseVars(text string) (*structpb.Struct, error) {
	if text == "" {
		return nil, nil
	}
	vars := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(text), vars); err != nil {
		return nil, usagef("--vars: %.80q is not a JSON object: %w", text, err)
	}
	return vars, nil
}

func (a *app) instanceDelete() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use: "delete ID | --key KEY", Short: "Delete an on-demand instance, or replace a managed one", Args: cobra.MaximumNArgs(1),
		Long: "Delete an on-demand instance, by its ID or by the idempotency key it was created with.\n\n" +
			"A managed instance is replaced, as its group's size does not change: the new instance comes up first, then the old one drains.\n" +
			"`group scale GROUP SIZE --remove ID` shrinks the group by exactly this instance.",
	}
	cmd.Flags().StringVar(&key, "key", "", "idempotency `key` of an on-demand instance, instead of its ID")
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		if (len(args) == 1) == (key != "") {
			return usagef("pass either an instance ID or --key")
		}
		if key != "" {
			client, shards, err := a.connect(a.target.write)
			if err != nil {
				return err
			}
			shard, err := client.DeleteInstanceByKey(cmd.Context(), shards, key)
			if err != nil {
				return err
			}
			return a.done(cmd.OutOrStdout(), fmt.Sprintf("the instance with key %s is being deleted in %s", key, shard),
				map[string]any{"key": key, "shard": shard})
		}
		return a.toInstance(cmd, args[0], (*admin.Client).DeleteInstance, "instance %s is being deleted or replaced in %s")
	})
}

func (a *app) instanceAck() *cobra.Command {
	cmd := &cobra.Command{Use: "ack ID", Short: "Acknowledge that a draining instance is empty", Args: cobra.ExactArgs(1)}
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		return a.toInstance(cmd, args[0], (*admin.Client).AcknowledgeDrained, "instance %s is acknowledged in %s and is being deleted")
	})
}

// toInstance calls do for the instance with an ID, in whichever shard has it, and prints words
// formatted with the ID and the shard.
func (a *app) toInstance(
	cmd *cobra.Command, id string, do func(*admin.Client, context.Context, []client.Shard, string) (string, error), words string,
) error {
	if _, err := fleet.ParseID(id); err != nil {
		return usageError{err}
	}
	client, shards, err := a.connect(a.target.read)
	if err != nil {
		return err
	}
	shard, err := do(client, cmd.Context(), shards, id)
	if err != nil {
		return err
	}
	return a.done(cmd.OutOrStdout(), fmt.Sprintf(words, id, shard), map[string]any{"id": id, "shard": shard})
}
