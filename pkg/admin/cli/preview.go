package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/config"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func configDiff(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff [FILE]", Short: "Show what a config refresh would do", Args: cobra.MaximumNArgs(1),
		Long: "Show what a config refresh would do: with the config in the bucket, or with that in FILE. Nothing is changed.\n\n" +
			"It lists the groups that come, go, live on or change, how many of their machines are replaced and how many at a time,\n" +
			"and the files that running machines receive.",
	}
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return previewOf(a, cmd, nil)
		}
		text, err := readConfig(args[0])
		if err != nil {
			return err
		}
		err = previewOf(a, cmd, text)
		if wrong := admin.TextProblems(text, err); wrong != nil && !a.target.all { // else there may be other errors
			return fmt.Errorf("%s is not valid:\n%w", args[0], wrong)
		}
		return err
	})
}

// previewOf prints what a text would do, or the config in the bucket if it is nil. A text is of one
// shard, unless --all-shards says otherwise.
func previewOf(a *app, cmd *cobra.Command, text []byte) error {
	pick := a.target.read
	if text != nil {
		pick = a.target.write
	}
	client, shards, err := a.connect(pick)
	if err != nil {
		return err
	}
	all, err := client.PreviewConfig(cmd.Context(), shards, text)
	if len(all) == 0 {
		return err
	}
	return errors.Join(printPreviews(a, cmd, all), err)
}

func printPreviews(a *app, cmd *cobra.Command, all []admin.Preview) error {
	if a.format != formatTable {
		return printValue(cmd.OutOrStdout(), a.format, all)
	}
	var rows []groupPreview
	for _, p := range all {
		rows = append(rows, previewRows(p.Shard, p.GetPreview())...)
		printEffects(cmd.ErrOrStderr(), p.Shard, p.GetPreview())
	}
	return printGroupPreviews(cmd.OutOrStdout(), rows)
}

// printRefreshed prints what refreshes did, in table format; others have it in their rows.
func printRefreshed(a *app, cmd *cobra.Command, all []admin.Refresh) error {
	var rows []groupPreview
	for _, r := range all {
		if r.Preview != nil {
			rows = append(rows, previewRows(r.Shard, r.Preview.ConfigPreview)...)
		}
	}
	if a.format != formatTable || len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(cmd.OutOrStdout())
	return printGroupPreviews(cmd.OutOrStdout(), rows)
}

// groupPreview is a row of a preview.
type groupPreview struct {
	shard string
	*nstancev1.GroupPreview
}

func previewRows(shard string, p *nstancev1.ConfigPreview) (rows []groupPreview) {
	for _, g := range p.GetGroups() {
		rows = append(rows, groupPreview{shard, g})
	}
	return rows
}

func printGroupPreviews(w io.Writer, rows []groupPreview) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "no group changes")
		return err
	}
	return printAll(w, formatTable, rows, []column[groupPreview]{
		{"SHARD", func(g groupPreview) string { return g.shard }},
		{"GROUP", func(g groupPreview) string { return g.GetTenant() + "/" + g.GetGroup() }},
		{"CHANGE", func(g groupPreview) string { return changeWord(g.GetChange()) }},
		{"SIZE", groupPreview.sizes},
		{"INSTANCES", func(g groupPreview) string { return strconv.Itoa(int(g.GetInstances())) }},
		{"REPLACED", groupPreview.replaced},
		{"PUSHED FILES", func(g groupPreview) string { return strings.Join(g.GetPushedFiles(), ", ") }},
		{"CHANGED FIELDS", func(g groupPreview) string { return strings.Join(g.GetFields(), ", ") }},
	})
}

func (g groupPreview) sizes() string {
	if g.GetSizeBefore() == g.GetSize() {
		return strconv.Itoa(int(g.GetSize()))
	}
	return fmt.Sprintf("%d -> %d", g.GetSizeBefore(), g.GetSize())
}

func (g groupPreview) replaced() string {
	if g.GetReplaced() == 0 {
		return "0"
	}
	if g.GetAtATime() == 0 {
		return fmt.Sprintf("%d, after resume", g.GetReplaced())
	}
	return fmt.Sprintf("%d, %d at a time", g.GetReplaced(), g.GetAtATime())
}

func changeWord(c nstancev1.GroupChange) string {
	switch c {
	case nstancev1.GroupChange_GROUP_CHANGE_ADDED:
		return "comes"
	case nstancev1.GroupChange_GROUP_CHANGE_REMOVED:
		return "goes"
	case nstancev1.GroupChange_GROUP_CHANGE_OUTLIVES:
		return "lives on as a dynamic group"
	case nstancev1.GroupChange_GROUP_CHANGE_ADOPTED:
		return "lives on as a static group"
	case nstancev1.GroupChange_GROUP_CHANGE_CHANGED:
		return "changes"
	default:
		return c.String()
	}
}

// printEffects prints what is not about the groups' machines: a line for each.
func printEffects(w io.Writer, shard string, p *nstancev1.ConfigPreview) {
	for _, r := range p.GetRemovals() {
		fmt.Fprintf(w, "%s: group %s/%s has to be confirmed: it loses %d instances (config refresh --accept-removal %[2]s/%[3]s)\n",
			shard, r.GetTenant(), r.GetGroup(), r.GetInstances())
	}
	if fields := p.GetRestartRequired(); len(fields) > 0 {
		fmt.Fprintf(w, "%s: takes effect after a restart of the server: %s\n", shard, strings.Join(fields, ", "))
	}
	for _, g := range p.GetGroups() {
		if why := g.GetDisabled(); why != "" {
			fmt.Fprintf(w, "%s: group %s/%s is disabled: %s\n", shard, g.GetTenant(), g.GetGroup(), oneLine(why))
		}
	}
	printOverrides(w, shard, p.GetSizeOverrides())
	printDeleted(w, shard, p.GetDeletedRecords())
}

// manyDeleted is from how many records of deleted instances on their cost is told.
const manyDeleted = 10_000

// printDeleted prints what the records of deleted instances cost, if they are many.
func printDeleted(w io.Writer, shard string, d *nstancev1.DeletedRecords) {
	if d.GetExpected() >= manyDeleted {
		window := time.Duration(d.GetWindowSeconds()) * time.Second
		fmt.Fprintf(w, "%s: at the rate of the last %s, deleted_record_retention keeps about %d records of deleted instances (now %d): "+
			"%d MiB of the server's memory\n", shard, config.Duration(window.Round(time.Minute)), d.GetExpected(), d.GetKept(),
			d.GetExpectedBytes()>>20)
	}
}
