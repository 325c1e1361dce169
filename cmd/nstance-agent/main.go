// Command nstance-agent runs on an instance: it registers, reports its health
// and receives what the instance should have. It is configured by NSTANCE_*
// environment variables.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
)

// version is set by the linker.
var version = "dev"

const usage = "usage: nstance-agent [--debug] [--version]\n       nstance-agent status [--output text|json]\n"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("nstance-agent", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	debugging := flags.Bool("debug", false, "log more")
	showVersion := flags.Bool("version", false, "print the version")
	switch err := flags.Parse(args); {
	case err != nil:
		return 2
	case *showVersion:
		fmt.Fprintln(stdout, "nstance-agent", version)
		return 0
	case flags.Arg(0) == "status":
		return status(flags.Args()[1:], stdout, stderr)
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "nstance-agent: unknown command %.80q\n%s", flags.Arg(0), usage)
		return 2
	}
	config, err := agent.FromEnv(os.LookupEnv)
	if err != nil {
		fmt.Fprintf(stderr, "nstance-agent: the environment is not valid:\n%v\n", err)
		return 2
	}
	return serve(complete(config, *debugging || config.Debug, stderr))
}

// serve runs the agent until it is asked to stop. An error is kept for a moment
// before the process ends with it, so that a supervisor does not spin.
func serve(config agent.Config) int {
	// An agent holds almost nothing: give the machine's memory back sooner.
	debug.SetGCPercent(50)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	reloadOnHangup(ctx, config.Logger)
	if err := agent.Run(ctx, config); err != nil {
		wait := rpc.Backoff().Draw(5, mathrand.Float64)
		config.Logger.LogAttrs(ctx, slog.LevelError, "the agent can't run", slog.Any("error", err), slog.Duration("exit_in", wait))
		_ = retry.Wait(ctx, wait) // asked to stop meanwhile: all the better
		return 1
	}
	return 0
}
