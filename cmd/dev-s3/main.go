// Command dev-s3 serves a local directory as an S3 bucket, for development, to callers with the
// keys of its environment.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/dev/gate"
	"github.com/nstance/nstance/pkg/dev/s3"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "dev-s3:", err)
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var addr string
	var cfg s3.Config
	c := &cobra.Command{
		Use:           "dev-s3",
		Short:         "Serve a local directory as an S3 bucket, for development",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			id, secret, err := gate.Keys(os.Getenv)
			if err != nil {
				return err
			}
			cfg.Keys = s3.Key(id, secret, os.Getenv("AWS_SESSION_TOKEN"))
			return s3.Run(c.Context(), addr, cfg)
		},
	}
	c.Flags().StringVar(&addr, "addr", "127.0.0.1:8989", "address to listen on")
	c.Flags().BoolVar(&cfg.Network, gate.NetworkFlag, false, gate.NetworkUsage)
	c.Flags().StringVar(&cfg.Root, "root", "temp/dev-s3", "directory of the bucket")
	c.Flags().StringVar(&cfg.Bucket, "bucket", "dev", "name of the bucket")
	return c
}
