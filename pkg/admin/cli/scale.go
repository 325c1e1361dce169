package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func (a *app) groupScale() *cobra.Command {
	var wait bool
	var remove []string
	cmd := &cobra.Command{
		Use: "scale GROUP SIZE", Short: "Set the size of a group", Args: cobra.ExactArgs(2),
		Long: "Set the size of a group to an absolute number of instances; relative sizes (+1, -1) are not supported.\n\n" +
			"Size 0 removes all instances: the command prompts on a terminal; otherwise it needs --yes.",
	}
	yes, force := yesFlag(cmd), forceFlag(cmd)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the group runs exactly that many instances, besides draining ones")
	cmd.Flags().StringSliceVar(&remove, "remove", nil, "`IDs` of the instances to remove")
	ifETag := etagFlag(cmd)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// An unknown flag of digits only is a negative size.
		var unknown interface{ GetSpecifiedShortnames() string }
		if errors.As(err, &unknown) {
			if n := unknown.GetSpecifiedShortnames(); n != "" && strings.Trim(n, "0123456789") == "" {
				return badSize("-" + n)
			}
		}
		return flagError(cmd, err)
	})
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		size, err := parseSize(args[1])
		if err != nil {
			return err
		}
		req := &nstancev1.UpsertGroupRequest{Key: args[0], Size: &size, Remove: remove, IfEtag: ifETag(), Force: *force}
		return a.upsert(cmd, req, wait, *yes)
	})
}

// parseSize parses an absolute size. Signs are refused, as they would look relative.
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
	var template, size, vars, policy string
	var wait bool
	cmd := &cobra.Command{
		Use: "create GROUP --template TEMPLATE", Short: "Create a dynamic group", Args: cobra.ExactArgs(1),
		Long: "Create a dynamic group. If the group exists the command changes nothing and fails, unless the group\n" +
			"is identical: so the command can be retried.",
	}
	cmd.Flags().StringVar(&template, "template", "", "template of the group's instances")
	cmd.Flags().StringVar(&size, "size", "", "number of `instances`, overriding the template's")
	instanceType := optional(cmd, "instance-type", "instance type, overriding the template's")
	subnetPool := optional(cmd, "subnet-pool", "subnet pool, overriding the template's")
	maxSurge := optional(cmd, "max-surge", "count or percentage above the size during replacement, overriding the template's")
	cmd.Flags().StringVar(&vars, "vars", "", "vars, as a JSON object")
	cmd.Flags().StringVar(&policy, "on-demand", "", "pod policy of the group, as a JSON `object`")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the group is at size")
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		if template == "" {
			return usagef("--template is required: pass the template of the group's instances")
		}
		vars, err := parseVars(vars)
		if err != nil {
			return err
		}
		req := &nstancev1.UpsertGroupRequest{Key: args[0], Template: &template, Vars: vars, Create: true,
			InstanceType: instanceType(), SubnetPool: subnetPool(), MaxSurge: maxSurge()}
		if cmd.Flags().Changed("size") {
			n, err := parseSize(size)
			if err != nil {
				return err
			}
			req.Size = &n
		}
		if cmd.Flags().Changed("on-demand") {
			if req.OnDemand, err = parseOnDemand("--on-demand", policy); err != nil {
				return err
			}
		}
		return a.upsert(cmd, req, wait, false)
	})
}

// etagFlag adds --if-etag.
func etagFlag(cmd *cobra.Command) func() *string {
	return optional(cmd, "if-etag", "change the group only if it has this `etag`; empty: only if the group does not exist")
}

// optional adds a flag that may be set to the empty string. The returned function returns nil
// if it is not set.
func optional(cmd *cobra.Command, name, usage string) func() *string {
	value := cmd.Flags().String(name, "", usage)
	return func() *string {
		if !cmd.Flags().Changed(name) {
			return nil
		}
		return value
	}
}

// upsert changes a group in the selected shards and, with wait, waits for it in all of them. It
// confirms before it removes all instances of an existing group, unless yes is set.
func (a *app) upsert(cmd *cobra.Command, req *nstancev1.UpsertGroupRequest, wait, yes bool) error {
	client, shards, err := a.connect(a.target.write)
	if err != nil {
		return err
	}
	switch etag := req.GetIfEtag(); {
	case len(shards) < 2:
	case etag != "":
		return usagef("--if-etag: %.80q belongs to a group of one shard: add --shard NAME", etag)
	case len(req.GetRemove()) > 0: // it would be gone already for the others
		return usagef("--remove: %.80q is an instance of one shard: add --shard NAME", req.GetRemove()[0])
	}
	if !req.GetCreate() && req.Size != nil && req.GetSize() == 0 {
		if err := a.confirmGroup(cmd, yes, client, shards, req.GetKey(), false); err != nil {
			return err
		}
	}
	groups, err := client.UpsertGroup(cmd.Context(), shards, req)
	for _, g := range groups {
		if len(g.AlreadyGone) > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s/%s: already gone: %s; the size is %d\n",
				g.Shard, g.GetKey(), strings.Join(g.AlreadyGone, ", "), g.GetSize())
		}
		if g.ManagedBefore != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s/%s: no longer managed by %s, which may change it back\n", g.Shard, g.GetKey(), g.ManagedBefore)
		}
	}
	if wait {
		ask(groups, req)
		err = errors.Join(err, a.await(cmd, client, shards, groups))
	}
	if len(groups) == 0 {
		return err
	}
	return errors.Join(printAll(cmd.OutOrStdout(), a.format, groups, groupColumns()), err)
}

// ask sets the size of groups to the one that a request asks for, since a response may show a later
// change already. If it names instances, only the response says what size it leads to.
func ask(groups []admin.Group, req *nstancev1.UpsertGroupRequest) {
	for _, g := range groups {
		if req.Size != nil && len(req.GetRemove()) == 0 {
			g.Size = req.GetSize()
		}
	}
}

// await waits for groups, each in its own shard, and updates groups in place: with their instances, unless
// the output is a table.
func (a *app) await(cmd *cobra.Command, c *admin.Client, shards []client.Shard, groups []admin.Group) error {
	out, with := cmd.ErrOrStderr(), client.Parts{Instances: a.format != formatTable}
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
			asked := groups[n]
			groups[n], draining, errs[n] = c.WaitGroup(cmd.Context(), shard[0], asked, with, printProgress(out))
			groups[n].AlreadyGone, groups[n].ManagedBefore = asked.AlreadyGone, asked.ManagedBefore
			if len(draining) > 0 {
				fmt.Fprintf(out, "%s/%s: still draining: %s\n", groups[n].Shard, groups[n].GetKey(), strings.Join(draining, ", "))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func printProgress(w io.Writer) func(admin.Group) {
	return func(g admin.Group) {
		troubles := admin.Troubles(g)
		if troubles != "" {
			troubles = "; " + troubles
		}
		fmt.Fprintf(w, "%s/%s: %d of %d running, %d pending, %d draining%s\n", g.Shard, g.GetKey(), g.GetActualSize(), g.GetSize(),
			g.GetPendingSize(), g.GetDrainingSize(), oneLine(troubles))
	}
}
