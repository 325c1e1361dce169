package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/spf13/cobra"
)

// nameArgs makes the errors about the number of arguments name the missing or the first surplus one.
func nameArgs(cmd *cobra.Command) {
	count := cmd.Args
	if count == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := count(cmd, args)
		want := placeholders(cmd.Use)
		switch {
		case err == nil:
			return nil
		case len(args) < len(want):
			return usagef("missing argument: %s: want %s", strings.Join(want[len(args):], " "), usageLine(cmd))
		case len(args) > len(want):
			return usagef("unexpected argument: %.80q: want %s", args[len(want)], usageLine(cmd))
		}
		return usageError{err}
	}
}

// placeholders returns the names of the arguments in a command's use.
func placeholders(use string) (names []string) {
	for _, word := range strings.Fields(use)[1:] {
		if strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" || strings.HasPrefix(word, "-") {
			break
		}
		names = append(names, word)
	}
	return names
}

func usageLine(cmd *cobra.Command) string {
	return strings.TrimSpace(cmd.Parent().CommandPath() + " " + cmd.Use)
}

// flagNames returns the flags of a command, with their dashes.
func flagNames(cmd *cobra.Command) (names []string) {
	for _, name := range namesIn(cmd.Flags().FlagUsages()) {
		names = append(names, "--"+name)
	}
	return names
}

// namesIn returns the names of flags in the help about them.
func namesIn(usages string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`).FindAllStringSubmatch(usages, -1) {
		names = append(names, m[1])
	}
	return names
}

// flagError says what is wrong with a flag, and names the flags it may have meant.
func flagError(cmd *cobra.Command, err error) error {
	var unknown interface {
		GetSpecifiedName() string
		GetSpecifiedShortnames() string
	}
	if !errors.As(err, &unknown) {
		return usageError{err}
	}
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 { // the flag is one of the command that was meant
		return unknownCommand(cmd, args[0])
	}
	name, short := unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames()
	full := "--" + name
	switch {
	case strings.HasPrefix(err.Error(), "flag needs an argument"):
		if short != "" {
			full = "-" + name
		}
		return usagef("%s: missing value: `%s --help` describes it", full, cmd.CommandPath())
	case short != "":
		return usagef("unknown flag -%s: `%s --help` lists the flags", short, cmd.CommandPath())
	}
	if meant := admin.Meant(full, flagNames(cmd)); meant != "" {
		return usagef("unknown flag %.80s%s", full, meant)
	}
	return usagef("unknown flag %.80s: `%s --help` lists the flags", full, cmd.CommandPath())
}

// needPath refuses an empty path of a file or folder; what is the name of its flag or argument.
func needPath(what, path string) error {
	if path == "" {
		return usagef("%s: the path is empty: pass that of a file or folder", what)
	}
	return nil
}

// errInterrupted is the outcome of a command that was interrupted.
var errInterrupted = errors.New("interrupted")

// ended returns the error of a command that was interrupted in one sentence.
func ended(a *app, err error) error {
	switch {
	case errors.Is(err, errDeclined), errors.Is(err, admin.ErrUnfinished): // says more
		return err
	case a.reads, errors.Is(err, admin.ErrNothingChanged):
		return errInterrupted
	}
	return fmt.Errorf("%w: a change that was under way may have been made; check the state before it is repeated", errInterrupted)
}
