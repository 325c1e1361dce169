package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
)

func (a *app) groupScale() *cobra.Command {
	var wait bool
	var remove []string
	cmd := &cobra.Command{
		Use: "scale GROUP SIZE", Short: "Set a group's size", Args: cobra.ExactArgs(2),
		Long: "Set a group's size, which is a number of instances: there is no +1 and no -1.\n\n" +
			"Before all instances of a group go, by size 0, on a terminal it is asked; elsewhere that needs --yes.",
	}
	yes := yesFlag(cmd)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the group runs that many and nothing else but draining instances")
	cmd.Flags().StringSliceVar(&remove, "remove", nil, "instance `ids` that leave for this size")
	ifETag := etagFlag(cmd)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		// What looks like flags may be a negative size.
		var unknown interface{ GetSpecifiedShortnames() string }
		if errors.As(err, &unknown) && strings.Trim(unknown.GetSpecifiedShortnames(), "0123456789") == "" {
			return badSize("-" + unknown.GetSpecifiedShortnames())
		}
		return err
	})
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		size, err := parseSize(args[1])
		if err != nil {
			return err
		}
		return a.upsert(cmd, admin.Change{Key: args[0], Size: &size, Remove: remove, IfETag: ifETag()}, wait, *yes)
	})
}

// parseSize reads a size, which is absolute: a sign would look like a difference.
func parseSize(text string) (int32, error) {
	digits := strings.Trim(text, "0123456789") == ""
	size, err := strconv.ParseInt(text, 10, 32)
	if !digits || err != nil {
		return 0, badSize(text)
	}
	return int32(size), nil
}

func badSize(text string) error {
	return usagef("size: %.40q is not valid: want a whole number from 0 up to the server's limit, in digits alone", text)
}

func (a *app) groupCreate() *cobra.Command {
	var template, size, instanceType, subnetPool, maxSurge, vars string
	var wait bool
	cmd := &cobra.Command{
		Use: "create GROUP --template TEMPLATE", Short: "Create a dynamic group", Args: cobra.ExactArgs(1),
		Long: "Create a dynamic group. One that exists is left as it is, and the command fails, unless it is just what the command makes:\n" +
			"so one whose answer got lost can be repeated.",
	}
	cmd.Flags().StringVar(&template, "template", "", "template of the group's instances")
	cmd.Flags().StringVar(&size, "size", "", "how many `instances`, instead of the template's number")
	cmd.Flags().StringVar(&instanceType, "instance-type", "", "instance type, instead of the template's")
	cmd.Flags().StringVar(&subnetPool, "subnet-pool", "", "subnet pool, instead of the template's")
	cmd.Flags().StringVar(&maxSurge, "max-surge", "", "count or share of the size that may be beyond it, instead of the template's")
	cmd.Flags().StringVar(&vars, "vars", "", "vars, as a JSON object")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the group is at size")
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		if template == "" {
			return usagef("--template: is empty: want the template of the group's instances")
		}
		change := admin.Change{Key: args[0], Template: &template, Create: true}
		if cmd.Flags().Changed("size") {
			n, err := parseSize(size)
			if err != nil {
				return err
			}
			change.Size = &n
		}
		if cmd.Flags().Changed("instance-type") {
			change.InstanceType = &instanceType
		}
		if cmd.Flags().Changed("subnet-pool") {
			change.SubnetPool = &subnetPool
		}
		if cmd.Flags().Changed("max-surge") {
			change.MaxSurge = &maxSurge
		}
		if vars != "" {
			if err := json.Unmarshal([]byte(vars), &change.Vars); err != nil {
				return usagef("--vars: %.80q is not a JSON object: %w", vars, err)
			}
		}
		return a.upsert(cmd, change, wait, false)
	})
}

// etagFlag adds a condition to a command that changes a group; nil: it has none.
func etagFlag(cmd *cobra.Command) func() *string {
	const name = "if-etag"
	etag := cmd.Flags().String(name, "", "change the group only if it has this `etag`; empty: only if there is none")
	return func() *string {
		if !cmd.Flags().Changed(name) {
			return nil
		}
		return etag
	}
}

// upsert changes a group in the shards that the flags say, and waits for it in
// all of them if asked to. Before all instances of one that exists go, it asks, but for
// yes.
func (a *app) upsert(cmd *cobra.Command, change admin.Change, wait, yes bool) error {
	client, shards, err := a.ask(a.target.write)
	if err != nil {
		return err
	}
	switch etag := change.IfETag; {
	case len(shards) < 2:
	case etag != nil && *etag != "":
		return usagef("--if-etag: %.80q is of a group of one shard: say --shard NAME", *etag)
	case len(change.Remove) > 0: // a shard that never had one takes it for gone, and has its oldest leave
		return usagef("--remove: %.80q is an instance of one shard: say --shard NAME", change.Remove[0])
	}
	if !change.Create && change.Size != nil && *change.Size == 0 {
		if err := a.confirmGroup(cmd, yes, client, shards, change.Key, false); err != nil {
			return err
		}
	}
	groups, err := client.UpsertGroup(cmd.Context(), shards, change)
	for _, g := range groups {
		if len(g.AlreadyGone) > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s/%s: gone already: %s\n", g.Shard, g.Key, strings.Join(g.AlreadyGone, ", "))
		}
	}
	if wait {
		err = errors.Join(err, a.await(cmd, client, shards, groups))
	}
	if len(groups) == 0 {
		return err
	}
	return errors.Join(printAll(cmd.OutOrStdout(), a.format, groups, groupColumns()), err)
}

// await waits for groups, each of its own shard, and brings them up to date.
func (a *app) await(cmd *cobra.Command, c *admin.Client, shards []client.Shard, groups []admin.Group) error {
	out := cmd.ErrOrStderr()
	errs := make([]error, len(groups))
	var all sync.WaitGroup
	for n := range groups {
		all.Go(func() {
			shard, err := client.Select(shards, groups[n].Shard)
			if err != nil {
				errs[n] = err
				return
			}
			var draining []string
			gone := groups[n].AlreadyGone
			groups[n], draining, errs[n] = c.WaitGroup(cmd.Context(), shard[0], groups[n].Key, printProgress(out))
			groups[n].AlreadyGone = gone
			if len(draining) > 0 {
				fmt.Fprintf(out, "%s/%s: still draining: %s\n", groups[n].Shard, groups[n].Key, strings.Join(draining, ", "))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func printProgress(w io.Writer) func(admin.Group) {
	return func(g admin.Group) {
		fmt.Fprintf(w, "%s/%s: %d of %d running, %d on their way, %d draining\n", g.Shard, g.Key, g.ActualSize, g.Size, g.PendingSize,
			g.DrainingSize)
	}
}
