// Package cli is nstance-admin's command line over package admin.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/spf13/cobra"
)

// Exit codes.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Env is the process around the command line.
type Env struct {
	Args   []string
	Getenv func(string) string
	Stdin  io.Reader // nil: there is none to ask on
	Stdout io.Writer
	Stderr io.Writer
	// Terminal: questions can be asked on Stdin.
	Terminal bool
	// Profile finds out how AWS is called; nil: as a server does.
	Profile admin.Profile
	Now     func() time.Time
	Random  io.Reader
	Version string
}

// Run runs one command and returns the exit code.
func Run(ctx context.Context, env Env) int {
	env.Stderr = &lineWriter{w: env.Stderr}
	a := &app{env: env}
	root := a.root() //nolint:contextcheck // commands get theirs when they run
	root.SetArgs(env.Args)
	if env.Stdin != nil {
		root.SetIn(env.Stdin)
	}
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	err := root.ExecuteContext(ctx)
	if a.client != nil {
		a.client.Close()
	}
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(env.Stderr, "nstance-admin: %v\n", err)
	if h := hint(err); h != "" {
		fmt.Fprintf(env.Stderr, "hint: %s\n", h)
	}
	// Once a command runs, its usage is right; cobra's own complaints come before.
	if errors.As(err, new(usageError)) || !a.started {
		return ExitUsage
	}
	return ExitFailed
}

// app holds what the flags say, for all commands.
type app struct {
	env     Env
	started bool
	client  *admin.Client

	output      string
	format      format
	timeout     time.Duration
	target      target
	identityDir string
	storage     admin.StorageConfig
}

func (a *app) root() *cobra.Command {
	root := branch(&cobra.Command{
		Use: "nstance-admin", Short: "Manage Nstance clusters and shards", Version: a.env.Version,
		SilenceUsage: true, SilenceErrors: true,
	}, a.cluster(), a.config(), a.group(), a.instance(), a.operator(), storageCommands(a), a.watch())
	f := root.PersistentFlags()
	f.StringVarP(&a.output, "output", "o", a.preset("OUTPUT", "table"), "table, json or yaml")
	f.DurationVar(&a.timeout, "timeout", 2*time.Minute, "how long the command may take")
	return root
}

// preset is the default of a flag: NSTANCE_ADMIN_{name}, else fallback.
func (a *app) preset(name, fallback string) string {
	if v := a.env.Getenv("NSTANCE_ADMIN_" + name); v != "" {
		return v
	}
	return fallback
}

// branch makes a command that only has others below it. Alone it shows its help;
// what is none of its commands is a mistake.
func branch(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(children...)
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		if close := cmd.SuggestionsFor(args[0]); len(close) > 0 {
			text += ", did you mean " + strings.Join(close, " or ") + "?"
		}
		return usagef("%s", text)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// endless marks a command that goes on until it is interrupted, unless a timeout
// is given.
const endless = "endless"

// leaf makes a command that does something, within the time that it may take.
func (a *app) leaf(cmd *cobra.Command, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if a.format, err = parseFormat(a.output); err != nil {
			return err
		}
		if a.timeout <= 0 {
			return usagef("timeout: %s is not valid: want a duration above 0, such as 30s", a.timeout)
		}
		if shard := cmd.Flags().Lookup("shard"); shard != nil {
			a.target.given = shard.Changed
		}
		a.started = true
		ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
		if cmd.Annotations[endless] == "" || cmd.Flags().Changed("timeout") {
			ctx, cancel = context.WithTimeout(ctx, a.timeout)
		}
		defer cancel()
		cmd.SetContext(ctx)
		return run(cmd, args)
	}
	return cmd
}
