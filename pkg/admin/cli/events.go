package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

func eventCommand(a *app) *cobra.Command {
	var since time.Duration
	var q admin.EventQuery
	var follow bool
	cmd := listing(&cobra.Command{
		Use: "events", Short: "List what the shards decided and which changes they accepted", Args: cobra.NoArgs,
		Annotations: map[string]string{endless: "follow"},
		Long: "List what the shards decided and which changes they accepted, oldest first: who or which rule, what, and why.\n\n" +
			"Events are kept when another leader takes over, and after the record of their instance is gone. " +
			"With --instance they tell why a machine was created, replaced or deleted.",
		Example: "  nstance-admin events --instance knd01m7y199gze3dr8samkjd054bp\n  nstance-admin events --group web --since 2h\n" +
			"  nstance-admin events --follow -o json",
	}, "INSTANCE")
	cmd.Flags().TextVar((*config.Duration)(&since), "since", config.Duration(0), "only events of this `duration` until now, such as 2h or 7d")
	cmd.Flags().StringVar(&q.Group, "group", "", "only events of this group")
	cmd.Flags().StringVar(&q.Instance, "instance", "", "only events of this instance, and of its replacement")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new events until interrupted")
	a.shardFlags(cmd)
	return show(a, cmd, func(cmd *cobra.Command, _ []string) error {
		switch _, err := fleet.ParseID(q.Instance); {
		case q.Instance != "" && err != nil:
			return usagef("--instance: %w", err)
		case since < 0:
			return usagef("--since: %s is not valid: want a duration above 0, such as 2h", since)
		case since > 0:
			q.Since = a.env.Now().Add(-since)
		}
		client, shards, err := a.connect(a.target.read)
		if err != nil {
			return err
		}
		found, missing, err := client.Events(cmd.Context(), shards, q)
		for _, shard := range missing {
			fmt.Fprintf(a.env.Stderr, "warning: shard %s can't read the events of its earlier leaders from object storage now\n", shard)
		}
		if !follow {
			return errors.Join(printAll(cmd.OutOrStdout(), a.format, found, eventColumns()), err)
		}
		if err != nil {
			return err
		}
		return followEvents(a, cmd, client, shards, q, found)
	})
}

// followEvents prints the events that were found, and then each new one.
func followEvents(
	a *app, cmd *cobra.Command, c *admin.Client, shards []client.Shard, q admin.EventQuery, found []admin.Happened,
) error {
	see := func(h admin.Happened) error { return printHappened(cmd.OutOrStdout(), a.format, h) }
	for _, h := range found {
		if err := see(h); err != nil {
			return err
		}
	}
	lost := func(err error) { fmt.Fprintf(a.env.Stderr, "waiting: %v\n", err) }
	return c.FollowEvents(cmd.Context(), shards, q, found, see, lost)
}

func eventColumns() []column[admin.Happened] {
	return []column[admin.Happened]{
		{"TIME", func(h admin.Happened) string { return date(h.GetAt()) }},
		{"SHARD", func(h admin.Happened) string { return h.Shard }},
		{"KIND", func(h admin.Happened) string { return h.GetKind() }},
		{"GROUP", func(h admin.Happened) string { return h.GetGroup() }},
		{"INSTANCE", func(h admin.Happened) string { return h.GetInstanceId() }},
		{"BY", admin.Happened.By},
		{"MESSAGE", func(h admin.Happened) string { return h.GetMessage() }},
	}
}

// printHappened prints an event in a form that can be parsed on its own.
func printHappened(w io.Writer, f format, h admin.Happened) error {
	switch f {
	case formatJSON:
		return json.NewEncoder(w).Encode(h)
	case formatYAML:
		if _, err := fmt.Fprintln(w, "---"); err != nil {
			return err
		}
		return printValue(w, f, h)
	default:
		var cells []string
		for _, c := range eventColumns() {
			if text := cellOf(c, h); text != "" {
				cells = append(cells, text)
			}
		}
		_, err := fmt.Fprintln(w, strings.Join(cells, "  "))
		return err
	}
}

func groupExplain(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain GROUP", Short: "Say why a group is not at size", Args: cobra.ExactArgs(1),
		Long: "Say why a group is not at size, in each shard that has it: its conditions, the instances that are not ready or leave, " +
			"and its latest events.",
	}
	return show(a, cmd, func(cmd *cobra.Command, args []string) error {
		client, shards, err := a.connect(a.target.read)
		if err != nil {
			return err
		}
		explained, err := client.ExplainGroup(cmd.Context(), shards, args[0], a.env.Now())
		if a.format != formatTable {
			return errors.Join(printValue(cmd.OutOrStdout(), a.format, explained), err)
		}
		for n, x := range explained {
			if n > 0 {
				fmt.Fprintln(cmd.OutOrStdout())
			}
			for _, line := range x.Lines {
				fmt.Fprintln(cmd.OutOrStdout(), oneLine(line))
			}
		}
		return err
	})
}
