// Command dev-aws serves a local stand-in for AWS, for development, to callers with the keys of
// its environment.
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
	"github.com/nstance/nstance/pkg/dev/gate"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
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
	world := aws.CloudConfig()
	world.Logger = cfg.Logger
	c := &cobra.Command{
		Use:           "dev-aws",
		Short:         "Serve a stand-in for AWS, for development: EC2, target groups, secrets, parameters, metadata",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			id, secret, err := gate.Keys(os.Getenv)
			if err != nil {
				return err
			}
			world.Keys = map[string]string{id: secret}
			cfg.Cloud = awstest.New(world)
			return aws.Listen(c.Context(), addr, cfg)
		},
	}
	f := c.Flags()
	f.StringVar(&addr, "addr", "127.0.0.1:8995", "address to listen on")
	f.BoolVar(&cfg.Network, gate.NetworkFlag, false, gate.NetworkUsage)
	f.StringVar(&cfg.Run, "run", "", "directory in which machines run their userdata as processes (default: machines do nothing)")
	f.DurationVar(&world.Boot, "boot", world.Boot, "how long a machine takes from pending to running")
	f.DurationVar(&world.Shutdown, "shutdown", world.Shutdown, "how long a machine takes to shut down")
	f.DurationVar(&world.Attach, "attach", world.Attach, "how long a network interface takes to be attached")
	f.DurationVar(&world.Detach, "detach", world.Detach, "how long a network interface takes to be detached")
	f.DurationVar(&world.Lag, "lag", world.Lag, "how stale reads may be")
	return c
}
