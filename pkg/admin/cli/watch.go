package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
)

func (a *app) watch() *cobra.Command {
	all := []string{client.WatchGroups, client.WatchInstances, client.WatchProblems}
	var only []string
	var everyPhase bool
	cmd := &cobra.Command{
		Use: "watch", Short: "Follow groups, leaving instances and problems of all shards", Args: cobra.NoArgs,
		Annotations: map[string]string{endless: "yes"},
		Long: "Follow groups, draining and deleted instances, and problems of all shards, one line each, until interrupted.\n\n" +
			"What there is comes first. With --output json or yaml each event is one line of JSON, or one YAML document.",
	}
	cmd.Flags().StringSliceVar(&only, "only", all, "groups, instances, problems")
	cmd.Flags().BoolVar(&everyPhase, "all", false, "instances of every phase, not only those that leave")
	a.shardFlags(cmd)
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		for _, what := range only {
			if !slices.Contains(all, what) {
				return usagef("--only: %.40q is not valid: want %s", what, strings.Join(all, ", "))
			}
		}
		switch i := slices.Index(only, client.WatchInstances); {
		case !everyPhase:
		case i < 0:
			return usagef("--all: is of instances, and --only is %q: want it to name instances", strings.Join(only, ", "))
		default:
			only[i] = client.WatchAllInstances
		}
		client, shards, err := a.ask(a.target.read)
		if err != nil {
			return err
		}
		return client.Watch(cmd.Context(), shards, only, func(e admin.Event) error {
			return printEvent(cmd.OutOrStdout(), a.format, e, a.env.Now())
		})
	})
}

// printEvent prints an event so that every one can be read by itself.
func printEvent(w io.Writer, f format, e admin.Event, now time.Time) error {
	switch f {
	case formatJSON:
		return json.NewEncoder(w).Encode(e)
	case formatYAML:
		if _, err := fmt.Fprintln(w, "---"); err != nil {
			return err
		}
		return printValue(w, f, e)
	default:
		_, err := fmt.Fprintf(w, "%s  %s  %s\n", now.UTC().Format(time.RFC3339), e.Shard, eventText(e))
		return err
	}
}

func eventText(e admin.Event) string {
	of := strings.TrimPrefix(e.Of, "all-")
	switch e.Kind {
	case admin.EventGroup:
		g := e.Group
		text := fmt.Sprintf("group %s: %d of %d running, %d on their way, %d draining", g.Key, g.ActualSize, g.Size, g.PendingSize,
			g.DrainingSize)
		if c := conditions(*g); c != "" {
			text += "; " + c
		}
		return text
	case admin.EventGroupGone:
		return fmt.Sprintf("group %s: gone", e.Key)
	case admin.EventInstance:
		return instanceText(*e.Instance)
	case admin.EventProblem:
		return problemText(*e.Problem)
	case admin.EventSnapshot:
		if e.Resumed {
			return fmt.Sprintf("this has changed of %s meanwhile; from here on, what changes", of)
		}
		return fmt.Sprintf("these are all %s; from here on, what changes", of)
	default:
		return fmt.Sprintf("%s: waiting: %s", of, e.Error)
	}
}

func instanceText(i admin.Instance) string {
	text := fmt.Sprintf("instance %s of %s: %s", i.ID, i.Group, i.Phase)
	if i.Reason != "" {
		text += " (" + i.Reason + ")"
	}
	if d := i.Drain; d != nil && d.DeleteAt != nil && i.Phase == "draining" {
		text += ", goes by " + d.DeleteAt.UTC().Format(time.RFC3339)
		if d.AckedAt != nil {
			text += ", acknowledged"
		}
	}
	return text
}

func problemText(p admin.Problem) string {
	text := "problem"
	if p.Group != "" {
		text += " of group " + p.Group
	}
	if p.InstanceID != "" {
		text += ", instance " + p.InstanceID
	}
	if p.Over {
		return fmt.Sprintf("%s: %s: over", text, p.Reason)
	}
	return fmt.Sprintf("%s: %s: %s", text, p.Reason, p.Message)
}
