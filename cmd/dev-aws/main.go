// Command dev-aws serves a stand-in for AWS on this machine, for development.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/dev/aws"
	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "dev-aws:", err)
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var addr string
	cfg := aws.Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	world := aws.World()
	world.Logger = cfg.Logger
	c := &cobra.Command{
		Use:           "dev-aws",
		Short:         "Serve a stand-in for AWS, for development: EC2, target groups, secrets, parameters, metadata",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg.Cloud = awsfake.New(world)
			return aws.Listen(c.Context(), addr, cfg)
		},
	}
	f := c.Flags()
	f.StringVar(&addr, "addr", "127.0.0.1:8995", "address to listen on")
	f.StringVar(&cfg.Run, "run", "", "directory in which machines run their userdata as processes (default: they do nothing)")
	f.DurationVar(&world.Boot, "boot", world.Boot, "how long a machine takes from pending to running")
	f.DurationVar(&world.Shutdown, "shutdown", world.Shutdown, "how long it takes to end")
	f.DurationVar(&world.Attach, "attach", world.Attach, "how long a network interface takes to be attached")
	f.DurationVar(&world.Detach, "detach", world.Detach, "how long it takes to be detached")
	f.DurationVar(&world.Lag, "lag", world.Lag, "how old what reads show may be")
	return c
}
