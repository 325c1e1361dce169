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
		Use: "watch", Short: "Watch groups, draining instances and problems of all shards", Args: cobra.NoArgs,
		Annotations: map[string]string{endless: "yes"},
		Long: "Watch groups, draining and deleted instances, and problems of all shards, one line per event, until interrupted.\n\n" +
			"The current state comes first. With --output json or yaml each event is one line of JSON, or one YAML document.",
	}
	cmd.Flags().StringSliceVar(&only, "only", all, "what to watch: groups, instances, problems")
	cmd.Flags().BoolVar(&everyPhase, "all", false, "include instances of every phase, not only draining and deleted ones")
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
			return usagef("--all applies to instances, but --only is %q: add instances to it", strings.Join(only, ", "))
		default:
			only[i] = client.WatchAllInstances
		}
		client, shards, err := a.connect(a.target.read)
		if err != nil {
			return err
		}
		lost := map[string]string{} // the last reason, by shard, until it answers
		return client.Watch(cmd.Context(), shards, only, func(e admin.Event) error {
			switch {
			case e.Kind != admin.EventLost:
				delete(lost, e.Shard)
			case a.format == formatTable && lost[e.Shard] == e.Error: // of another kind of object, or again
				return nil
			default:
				lost[e.Shard] = e.Error
			}
			return printEvent(cmd.OutOrStdout(), a.format, e, a.env.Now())
		})
	})
}

// printEvent prints an event in a form that can be parsed on its own.
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
		_, err := fmt.Fprintf(w, "%s  %s  %s\n", now.UTC().Format(time.RFC3339), e.Shard, oneLine(eventText(e)))
		return err
	}
}

func eventText(e admin.Event) string {
	of := strings.TrimPrefix(e.Of, "all-")
	switch e.Kind {
	case admin.EventGroup:
		g := e.Group
		text := fmt.Sprintf("group %s: %d of %d running, %d pending, %d draining", g.GetKey(), g.GetActualSize(), g.GetSize(), g.GetPendingSize(),
			g.GetDrainingSize())
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
			return fmt.Sprintf("the changes to %s since the last event are listed; live events follow", of)
		}
		return fmt.Sprintf("all %s are listed; live events follow", of)
	default:
		return "waiting: " + strings.TrimPrefix(e.Error, "shard "+e.Shard+": ")
	}
}

func instanceText(i admin.Instance) string {
	text := fmt.Sprintf("instance %s of %s: %s", i.GetId(), i.GetGroup(), phase(i))
	if i.GetReason() != "" {
		text += " (" + i.GetReason() + ")"
	}
	if by := date(i.GetDrain().GetDeleteAt()); by != "" && phase(i) == "draining" {
		text += ", deleted by " + by
		if !i.Drains() {
			text += ", acknowledged"
		}
	}
	return text
}

func problemText(p admin.Problem) string {
	text := "problem"
	if p.GetGroup() != "" {
		text += " of group " + p.GetGroup()
	}
	if p.GetInstanceId() != "" {
		text += ", instance " + p.GetInstanceId()
	}
	if p.GetOver() {
		return fmt.Sprintf("%s: %s: over", text, p.GetReason())
	}
	return fmt.Sprintf("%s: %s: %s", text, p.GetReason(), p.GetMessage())
}
