// Command nstance-agent runs on an instance: it registers, reports the instance's health and
// receives its files. NSTANCE_* environment variables configure it.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"runtime/debug"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/logs"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/signals"
	"github.com/nstance/nstance/pkg/tracing"
	"github.com/nstance/nstance/pkg/tracing/otlp"
)

// version is set by the linker.
var version = "dev"

const usage = "usage: nstance-agent [--debug] [--log-format text|json] [--version]\n       nstance-agent status [--output text|json]\n"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("nstance-agent", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	debugging := flags.Bool("debug", false, "log at debug level")
	format := flags.String("log-format", cmp.Or(os.Getenv("NSTANCE_LOG_FORMAT"), logs.Text), "text or json")
	showVersion := flags.Bool("version", false, "print the version")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
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
	var level slog.LevelVar
	logger, err := logs.New(*format, stderr, &level)
	if err != nil {
		fmt.Fprintf(stderr, "nstance-agent: --log-format (NSTANCE_LOG_FORMAT): %v\n", err)
		return 2
	}
	config, err := agent.FromEnv(os.Getenv)
	if err != nil {
		fmt.Fprintf(stderr, "nstance-agent: invalid environment:\n%v\n", err)
		return 2
	}
	if *debugging || config.Debug {
		level.Set(slog.LevelDebug)
	}
	return serve(complete(config, logger))
}

// trace has the agent make traces, if the environment asks for them. A machine whose environment is
// wrong joins its cluster without.
func trace(ctx context.Context, config *agent.Config) (flush func()) {
	tracer, flush, err := otlp.Open(ctx, otlp.Config{
		Service: "nstance-agent", Version: config.Version, Attributes: map[string]string{tracing.AttrInstance: string(config.InstanceID)},
		Getenv: os.Getenv, Now: config.Now, Logger: config.Logger,
	})
	if err != nil {
		config.Logger.LogAttrs(ctx, slog.LevelWarn, "traces are off: the environment is not valid", slog.Any("error", err))
	}
	config.Tracer = tracer
	return flush
}

// serve runs the agent until it is stopped. After an error it waits before the process exits,
// so that a supervisor does not restart it in a tight loop.
func serve(config agent.Config) int {
	// The agent's heap is small: return memory to the machine earlier.
	debug.SetGCPercent(50)
	signals.OutliveReaders()
	ctx, stop := signals.StopButHangup(context.Background())
	defer stop()
	flush := trace(ctx, &config)
	defer flush()
	reloadOnHangup(ctx, flush, config.Logger)
	if err := agent.Run(ctx, config); err != nil {
		wait := rpc.Backoff().Draw(5, mathrand.Float64)
		config.Logger.LogAttrs(ctx, slog.LevelError, "agent failed", slog.Any("error", err), slog.Duration("exit_in", wait))
		_ = retry.Wait(ctx, wait) // ends early if the agent is stopped
		return 1
	}
	return 0
}
