package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
)

// maxNamed is how many instances of one group are named before a command takes them away.
const maxNamed = 10

// errDeclined is the outcome of a command that was not confirmed.
var errDeclined = errors.New("not confirmed: nothing was changed")

// yesFlag adds the flag that confirms what a command takes away.
func yesFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("yes", "y", false, "take machines away without asking; required where standard input is no terminal")
}

// confirm prints what goes, one thing a line, on standard error, and asks whether it may.
// Nothing is asked when nothing goes, or yes is set. Where standard input is no terminal
// the error is a usageError that says what to add: --yes, or the alternative, if any.
func (a *app) confirm(cmd *cobra.Command, yes bool, goes []string, alternative string) error {
	if len(goes) == 0 {
		return nil
	}
	out := cmd.ErrOrStderr()
	fmt.Fprintf(out, "this takes machines away:\n  %s\n", strings.Join(goes, "\n  "))
	switch {
	case yes:
		return nil
	case a.env.Stdin == nil || !a.env.Terminal:
		if alternative != "" {
			alternative = " or " + alternative
		}
		return usagef("--yes: required, since standard input is no terminal to ask on: nothing was changed; add --yes%s", alternative)
	}
	answer, err := question(a, cmd, "Go on? Type yes: ")
	if err != nil {
		return fmt.Errorf("%w: %w", errDeclined, err)
	}
	if answer = strings.ToLower(answer); answer != "yes" && answer != "y" {
		return errDeclined
	}
	return nil
}

// errNoAnswer says that a question was not answered in time.
var errNoAnswer = errors.New("no answer within --timeout")

// question asks on standard error, and returns the line that answers.
func question(a *app, cmd *cobra.Command, text string) (string, error) {
	out := cmd.ErrOrStderr()
	fmt.Fprint(out, text)
	answers := make(chan string, 1)
	go func() { // it waits for a line that may never come
		line, _ := bufio.NewReader(a.env.Stdin).ReadString('\n')
		answers <- strings.TrimSpace(line)
	}()
	select {
	case answer := <-answers:
		return answer, nil
	case <-cmd.Context().Done():
		fmt.Fprintln(out)
		return "", errNoAnswer
	}
}

// confirmGroup is confirm of all instances that a group counts, and of its on-demand ones
// too if those go with it. With yes, shards that can't say what goes are no obstacle.
func (a *app) confirmGroup(cmd *cobra.Command, yes bool, c *admin.Client, shards []client.Shard, group string, onDemand bool) error {
	goes, err := goesFrom(cmd, c, shards, group, onDemand)
	if err != nil && !yes {
		return err
	}
	return a.confirm(cmd, yes, goes, "")
}

// goesFrom says which instances of a group go if all do that it counts, and its on-demand
// ones too if those go with it: a line for each shard where there are any.
func goesFrom(cmd *cobra.Command, c *admin.Client, shards []client.Shard, group string, onDemand bool) ([]string, error) {
	ids, err := countedBy(cmd, c, shards, group, onDemand)
	if err != nil {
		return nil, err
	}
	var lines []string
	for of, some := range ids {
		lines = append(lines, fmt.Sprintf("%s: %s", of, named(some)))
	}
	slices.Sort(lines)
	return lines, nil
}

// countedBy are the ids of the instances that a group counts, and of its on-demand ones too
// if asked for, by shard/group.
func countedBy(cmd *cobra.Command, c *admin.Client, shards []client.Shard, group string, onDemand bool) (map[string][]string, error) {
	all, err := c.ListInstances(cmd.Context(), shards, group, false)
	if err != nil {
		return nil, fmt.Errorf("list what would go: %w", err)
	}
	ids := map[string][]string{}
	for _, i := range all {
		if (i.Phase == "pending" || i.Phase == "running") && (onDemand || !i.OnDemand) {
			ids[i.Shard+"/"+i.Group] = append(ids[i.Shard+"/"+i.Group], i.ID)
		}
	}
	return ids, nil
}

// named is the number of instances, and the names of the first.
func named(ids []string) string {
	slices.Sort(ids)
	noun := "instances"
	if len(ids) == 1 {
		noun = "instance"
	}
	text := fmt.Sprintf("%d %s: %s", len(ids), noun, strings.Join(ids[:min(len(ids), maxNamed)], ", "))
	if more := len(ids) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Terminal reports whether questions can be asked on a file: it is a device other than
// the one that is always empty.
func Terminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
