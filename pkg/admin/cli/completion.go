package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
)

// completeWithin bounds how long a shell waits for completions from shards or storage.
const completeWithin = 3 * time.Second

// completes returns the names that complete an argument or the value of a flag. Without an answer there
// are none: a shell shows no errors.
type completes func(ctx context.Context, a *app, cmd *cobra.Command) []string

// completion has the shell complete the arguments and flags of all commands.
func completion(a *app, root *cobra.Command) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if names := placeholders(cmd.Use); cmd.RunE != nil && !cmd.HasSubCommands() && len(names) > 0 {
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
				if len(args) >= len(names) {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return suggest(a, cmd, forArgument(cmd, names[len(args)]), names[len(args)] == "FILE")
			}
		}
		for flag, find := range forFlags() {
			f := cmd.PersistentFlags().Lookup(flag)
			if f == nil {
				f = cmd.Flags().Lookup(flag)
			}
			if f == nil || flag == "output" && cmd.Name() == "nonce" { // a file
				continue
			}
			// The only error is that the flag has a function already.
			_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return suggest(a, cmd, find, false)
			})
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(root)
}

// suggest returns completions; files: the shell completes files instead, as it does without any.
func suggest(a *app, cmd *cobra.Command, find completes, files bool) ([]cobra.Completion, cobra.ShellCompDirective) {
	if files {
		return nil, cobra.ShellCompDirectiveDefault
	}
	if find == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	names := find(ctx, a, cmd)
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "" }), cobra.ShellCompDirectiveNoFileComp
}

func forArgument(cmd *cobra.Command, name string) completes {
	switch {
	case name == "GROUP":
		return groupNames
	case name == "SHARD":
		return shardNamesOf
	case name == "ID" && cmd.Parent().Name() == "operator":
		return operatorIDs
	case name == "ID":
		return instanceIDs
	}
	return nil
}

func forFlags() map[string]completes {
	return map[string]completes{
		"shard": shardNamesOf, "group": groupNames, "template": templateNames, "tenant": tenantNames,
		"instance": instanceIDs, "id": instanceIDs, "remove": instanceIDs,
		"output": func(_ context.Context, _ *app, cmd *cobra.Command) []string {
			formats := []string{string(formatTable), string(formatJSON), string(formatYAML)}
			if cmd.Annotations[nameColumn] != "" {
				formats = append(formats, string(formatWide), string(formatName))
			}
			return formats
		},
	}
}

// fromShards returns names from the answers of the selected shards; those of the shards that answered if
// others don't.
func fromShards[T any](
	ctx context.Context, a *app, ask func(*admin.Client, context.Context, []client.Shard) ([]T, error), name func(T) string,
) (names []string) {
	c, shards, err := a.connect(a.target.read) //nolint:contextcheck // it reads files
	if err != nil {
		return nil
	}
	rows, _ := ask(c, ctx, shards) // completions are what is known
	for _, r := range rows {
		names = append(names, name(r))
	}
	return names
}

func groupNames(ctx context.Context, a *app, _ *cobra.Command) []string {
	return fromShards(ctx, a, listGroups(client.Parts{}), func(g admin.Group) string { return g.GetKey() })
}

// templateNames returns the templates that groups have.
func templateNames(ctx context.Context, a *app, _ *cobra.Command) []string {
	return fromShards(ctx, a, listGroups(client.Parts{}), func(g admin.Group) string { return g.GetTemplate() })
}

func instanceIDs(ctx context.Context, a *app, _ *cobra.Command) []string {
	return fromShards(ctx, a, func(c *admin.Client, ctx context.Context, shards []client.Shard) ([]admin.Instance, error) {
		return c.ListInstances(ctx, shards, "", false)
	}, func(i admin.Instance) string { return i.GetId() })
}

func operatorIDs(ctx context.Context, a *app, _ *cobra.Command) []string {
	return fromShards(ctx, a, func(c *admin.Client, ctx context.Context, shards []client.Shard) ([]admin.Operator, error) {
		return c.ListOperators(ctx, shards, false)
	}, func(o admin.Operator) string { return o.GetId() })
}

func shardNamesOf(_ context.Context, a *app, _ *cobra.Command) (names []string) {
	shards, err := client.ParseServers(a.target.servers)
	if err != nil {
		return nil
	}
	for _, s := range shards {
		names = append(names, s.ID)
	}
	return names
}

// tenantNames returns the tenants that the configs in the storage declare.
func tenantNames(ctx context.Context, a *app, cmd *cobra.Command) []string {
	cmd.SetContext(ctx)
	if err := reach(a, cmd); err != nil { //nolint:contextcheck // the command has it
		return nil
	}
	names, err := admin.Tenants(ctx, a.storage, a.env.Getenv)
	if err != nil {
		return nil
	}
	return names
}
