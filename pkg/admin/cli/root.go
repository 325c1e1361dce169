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
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/tracing"
	"github.com/spf13/cobra"
)

// Exit codes.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Env is the environment of the command line.
type Env struct {
	Args   []string
	Getenv func(string) string
	Stdin  io.Reader // nil: no prompts
	Stdout io.Writer
	Stderr io.Writer
	// Terminal is set if Stdin can be prompted on.
	Terminal bool
	// Profile resolves how AWS is called; nil: as a server does.
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
	err := root.ExecuteContext(tracing.Remote(ctx, env.Getenv("TRACEPARENT")))
	if a.client != nil {
		a.client.Close()
	}
	if err == nil {
		return ExitOK
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		err = ended(a, err)
	}
	fmt.Fprintf(env.Stderr, "nstance-admin: %v\n", err)
	if h := hint(err); h != "" {
		if a.patience > 0 && errors.Is(err, context.DeadlineExceeded) {
			h += "; --timeout 1m looks for a leader for longer"
		}
		fmt.Fprintf(env.Stderr, "hint: %s\n", h)
	}
	// Usage errors after a command started are the command's own; before that they are cobra's.
	if errors.As(err, new(usageError)) || !a.started {
		return ExitUsage
	}
	return ExitFailed
}

// app holds the parsed flags of all commands.
type app struct {
	env     Env
	started bool
	reads   bool // the command changes nothing
	client  *admin.Client

	output      string
	format      format
	limit       string        // --timeout as it was given
	timeout     time.Duration // what it means for the command
	patience    time.Duration // for the leader of a shard; 0: timeout
	target      target
	identityDir string
	storage     admin.StorageConfig
	oldKeys     []string // sources of old encryption keys
	presets     map[string]bool
}

func (a *app) root() *cobra.Command {
	root := branch(&cobra.Command{
		Use: "nstance-admin", Short: "Manage Nstance clusters and shards", Version: a.env.Version,
		SilenceUsage: true, SilenceErrors: true,
	}, a.cluster(), a.config(), a.group(), a.instance(), a.operator(), shardCommand(a), storageCommands(a), a.watch(),
		eventCommand(a), serveCommand(a), doctorCommand(a), versionCommand(a))
	root.SetFlagErrorFunc(flagError)
	f := root.PersistentFlags()
	f.StringVarP(&a.output, "output", "o", a.preset("OUTPUT", "table"), "table, json or yaml; of lists also wide (nothing is cut) and name")
	f.StringVar(&a.limit, "timeout", a.preset("TIMEOUT", ""),
		"timeout of the command, a `duration` such as 30s or 1d; not given: 2m, of which one that shows what shards have\n"+
			"looks for their leaders for 5s")
	describe(a, root)
	completion(a, root)
	return root
}

// preset is the default of a flag: NSTANCE_ADMIN_{name}, else fallback.
func (a *app) preset(name, fallback string) string {
	if a.presets == nil {
		a.presets = map[string]bool{}
	}
	a.presets[name] = true
	if v := a.env.Getenv(presetPrefix + name); v != "" {
		return v
	}
	return fallback
}

// branch makes a command that only has subcommands. Without one it prints its help; an unknown
// one is an error.
func branch(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(children...)
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(cmd, args[0])
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// unknownCommand says that a branch has no such command, and which may be meant.
func unknownCommand(branch *cobra.Command, name string) error {
	text := fmt.Sprintf("unknown command %.80q for %q", name, branch.CommandPath())
	if close := branch.SuggestionsFor(name); len(close) > 0 {
		return usagef("%s, did you mean %s?", text, strings.Join(close, " or "))
	}
	return usagef("%s: `%s --help` lists the commands", text, branch.CommandPath())
}

// endless marks a command that runs until interrupted, unless a timeout is given: always (yes), or
// with the flag of that name.
const endless = "endless"

func isEndless(cmd *cobra.Command) bool {
	when := cmd.Annotations[endless]
	return when == "yes" || when != "" && cmd.Flags().Changed(when)
}

// Without --timeout, a command takes workTimeout at most, and one that shows what shards have looks for
// their leaders for showPatience.
const (
	workTimeout  = 2 * time.Minute
	showPatience = 5 * time.Second
)

// parseTimeout returns --timeout, or what a command has without it.
func parseTimeout(a *app, cmd *cobra.Command) (time.Duration, error) {
	if a.limit == "" && !cmd.Flags().Changed("timeout") {
		return workTimeout, nil
	}
	var d config.Duration
	if err := d.UnmarshalText([]byte(a.limit)); err != nil || d <= 0 {
		return 0, usagef("--timeout: %.40q is not valid: want a duration above 0, such as 30s", a.limit)
	}
	return d.Std(), nil
}

// show makes a command that shows what shards have: it changes nothing.
func show(a *app, cmd *cobra.Command, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		a.reads = true
		if a.limit == "" && !isEndless(cmd) {
			a.patience = showPatience
		}
		return run(cmd, args)
	})
}

// leaf makes a command that does work, within --timeout.
func (a *app) leaf(cmd *cobra.Command, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	nameArgs(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if a.format, err = parseFormat(a.output, cmd.Annotations[nameColumn] != ""); err != nil {
			return err
		}
		arrange(a, cmd)
		if a.timeout, err = parseTimeout(a, cmd); err != nil {
			return err
		}
		if shard := cmd.Flags().Lookup("shard"); shard != nil {
			a.target.given = shard.Changed
		}
		a.started = true
		ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
		if !isEndless(cmd) || cmd.Flags().Changed("timeout") {
			ctx, cancel = context.WithTimeout(ctx, a.timeout)
		}
		defer cancel()
		cmd.SetContext(ctx)
		return run(cmd, args)
	}
	return cmd
}
