// Command nstance-asg reports the health of a server to the Auto Scaling group of its machine.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/nstance/nstance/pkg/asg"
	"github.com/nstance/nstance/pkg/logs"
	"github.com/nstance/nstance/pkg/signals"
)

// version is set by the linker.
var version = "dev"

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	signals.OutliveReaders()
	ctx, stop := signals.Stop(context.Background())
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	cfg := asg.Config{Version: version}
	f := flag.NewFlagSet("nstance-asg", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&cfg.Group, "asg", "", "`name` of this machine's Auto Scaling group; required")
	f.StringVar(&cfg.Hook, "hook", "", "`name` of the launch lifecycle hook to complete when the server is healthy; empty: none")
	f.StringVar(&cfg.InstanceID, "instance-id", "", "EC2 instance `ID` of this machine (default: from the metadata service)")
	f.StringVar(&cfg.AWS.Region, "region", "", "the group's `region` (default: AWS_REGION, or from the metadata service)")
	f.StringVar(&cfg.HealthURL, "health-url", asg.DefaultHealthURL, "`URL` of the server's health endpoint")
	f.DurationVar(&cfg.Every, "every", asg.DefaultEvery, "interval between health checks")
	f.DurationVar(&cfg.LostAfter, "lost-after", asg.DefaultLostAfter, "how long a server must not answer before its machine is replaced")
	f.StringVar(&cfg.StateFile, "state", "", "`file` that keeps the state across restarts; empty: no state is kept")
	f.StringVar(&cfg.MetricsAddr, "metrics-addr", "", "listen `address` of the metrics; empty: none are served")
	format := f.String("log-format", cmp.Or(os.Getenv("NSTANCE_LOG_FORMAT"), logs.Text),
		"`format` of the log: text or json (NSTANCE_LOG_FORMAT)")
	show := f.Bool("version", false, "print the version")
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case *show:
		fmt.Fprintln(out, "nstance-asg", version)
		return 0
	case f.NArg() > 0:
		fmt.Fprintf(errOut, "nstance-asg: unexpected argument %q: want flags only\n", f.Arg(0))
		return exitUsage
	}
	if cfg.Logger, err = logs.New(*format, errOut, slog.LevelInfo); err != nil {
		fmt.Fprintln(errOut, "nstance-asg: --log-format:", err)
		return exitUsage
	}
	if err := cfg.Validate(); err != nil {
		fmt.Fprintln(errOut, "nstance-asg:", err)
		return exitUsage
	}
	if err := asg.Run(ctx, cfg); err != nil {
		fmt.Fprintln(errOut, "nstance-asg:", err)
		return exitFailed
	}
	return 0
}
