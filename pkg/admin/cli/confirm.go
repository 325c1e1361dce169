package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
)

// errDeclined is returned for a command that was not confirmed.
var errDeclined = errors.New("not confirmed: nothing was changed")

// yesFlag adds --yes, which skips the confirmation prompt.
func yesFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("yes", "y", false, "remove machines without confirmation; required if standard input is not a terminal")
}

// forceFlag adds --force to a command that changes a group.
func forceFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("force", false, "change a group that something else manages, such as the Kubernetes operator")
}

// confirm prints the removals, one per line, to standard error and prompts for confirmation. It
// does not prompt if there are none or yes is set. If standard input is not a terminal it
// returns a usageError that names the flags to add: --yes, or the alternative, if any.
func (a *app) confirm(cmd *cobra.Command, yes bool, goes []string, alternative string) error {
	return approve(a, cmd, yes, "this removes machines:", goes, alternative)
}

// approve is app.confirm for changes other than removals; the title says what the lines are.
func approve(a *app, cmd *cobra.Command, yes bool, title string, lines []string, alternative string) error {
	if len(lines) == 0 {
		return nil
	}
	out := cmd.ErrOrStderr()
	fmt.Fprintln(out, title)
	for _, line := range lines {
		fmt.Fprintln(out, "  "+oneLine(line))
	}
	switch {
	case yes:
		return nil
	case a.env.Stdin == nil || !a.env.Terminal:
		if alternative != "" {
			alternative = " or " + alternative
		}
		return usagef("--yes: required because standard input is not a terminal; nothing was changed; add --yes%s", alternative)
	}
	answer, err := question(a, cmd, "Continue? Type yes: ")
	if err != nil {
		return fmt.Errorf("%w: %w", errDeclined, err)
	}
	if answer = strings.ToLower(answer); answer != "yes" && answer != "y" {
		return errDeclined
	}
	return nil
}

// errNoAnswer means that a prompt was not answered in time.
var errNoAnswer = errors.New("no answer within --timeout")

// question prompts on standard error and returns the line read.
func question(a *app, cmd *cobra.Command, text string) (string, error) {
	out := cmd.ErrOrStderr()
	fmt.Fprint(out, text)
	answers := make(chan string, 1)
	go func() { // may block forever on the read
		line, _ := bufio.NewReader(a.env.Stdin).ReadString('\n')
		answers <- strings.TrimSpace(line)
	}()
	select {
	case answer := <-answers:
		return answer, nil
	case <-cmd.Context().Done():
		fmt.Fprintln(out)
		if errors.Is(cmd.Context().Err(), context.Canceled) {
			return "", errInterrupted
		}
		return "", errNoAnswer
	}
}

// confirmGroup confirms the removal of all counted instances of a group, and of its on-demand
// instances if onDemand is set. With yes, shards that can't be listed are ignored.
func (a *app) confirmGroup(cmd *cobra.Command, yes bool, c *admin.Client, shards []client.Shard, group string, onDemand bool) error {
	ids, err := c.Counted(cmd.Context(), shards, group, onDemand)
	if err != nil && !yes {
		return err
	}
	return a.confirm(cmd, yes, admin.RemovalLines(ids), "")
}

// Terminal reports whether f can be prompted on: a character device other than the null device.
func Terminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
