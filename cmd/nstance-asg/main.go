// Command nstance-asg speaks for a server to the Auto Scaling group of its machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/nstance/nstance/pkg/asg"
)

// version is set by the linker.
var version = "dev"

// What the command exits with.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	cfg := asg.Config{Logger: slog.New(slog.NewTextHandler(errOut, nil))}
	f := flag.NewFlagSet("nstance-asg", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&cfg.Group, "asg", "", "`name` of the Auto Scaling group that this machine is of; required")
	f.StringVar(&cfg.Hook, "hook", "", "`name` of the lifecycle hook that holds the machine up until its server is healthy; empty: none does")
	f.StringVar(&cfg.InstanceID, "instance-id", "", "this machine's `id` at EC2 (default: as the metadata service says)")
	f.StringVar(&cfg.AWS.Region, "region", "", "the group's `region` (default: AWS_REGION, or as the metadata service says)")
	f.StringVar(&cfg.HealthURL, "health-url", asg.DefaultHealthURL, "`URL` of the server's health endpoint")
	f.DurationVar(&cfg.Every, "every", asg.DefaultEvery, "how often it is asked")
	f.DurationVar(&cfg.LostAfter, "lost-after", asg.DefaultLostAfter, "how long nothing answers before the machine is to be replaced")
	f.StringVar(&cfg.StateFile, "state", "", "`file` that keeps what was seen from one start to the next; empty: nothing is kept")
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
