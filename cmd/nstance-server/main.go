// Command nstance-server runs one shard.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/garbage"
	"github.com/nstance/nstance/pkg/server"
	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go garbage.Govern(ctx)
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "nstance-server:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	host, _ := os.Hostname()
	cfg := server.Config{Version: version, Getenv: os.Getenv, Now: time.Now, Random: rand.Reader}
	var validate bool
	cmd := &cobra.Command{
		Use:           "nstance-server",
		Short:         "Run one shard of an Nstance cluster",
		Version:       version,
		Args:          cobra.MaximumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level(cfg.Debug)}))
			if validate {
				return server.Validate(cmd.Context(), cfg, args, os.Stdout)
			}
			if len(args) > 0 {
				return fmt.Errorf("unexpected argument %q: only --validate takes one, a file", args[0])
			}
			return server.Run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Shard, "shard", os.Getenv("NSTANCE_SHARD"), "id of the shard (NSTANCE_SHARD)")
	f.StringVar(&cfg.ID, "id", host, "name of this server")
	f.StringVar(&cfg.StorageProvider, "storage-provider", "s3", "s3 or dir")
	f.StringVar(&cfg.StorageBucket, "storage-bucket", os.Getenv("NSTANCE_STORAGE_BUCKET"),
		"bucket, or a directory for dir (NSTANCE_STORAGE_BUCKET)")
	f.StringVar(&cfg.CacheDir, "cache-dir", "cache", "folder of the cache; may be deleted at any time")
	f.StringVar(&cfg.AdvertiseHost, "advertise-host", "", "address that others reach this server at (default: the primary interface's)")
	f.StringVar(&cfg.Self, "self", "",
		"what the provider calls the machine that this server runs on, which it moves the leader's address to (default: it finds out)")
	f.StringVar(&cfg.Bind.Health, "health-addr", "",
		"health endpoint, instead of the config's (before the config is known: "+server.DefaultHealthAddr+")")
	f.StringVar(&cfg.Bind.Election, "election-addr", "", "peer endpoint, instead of the config's")
	f.StringVar(&cfg.Bind.Registration, "registration-addr", "", "registration service, instead of the config's")
	f.StringVar(&cfg.Bind.Operator, "operator-addr", "", "operator service, instead of the config's")
	f.StringVar(&cfg.Bind.Agent, "agent-addr", "", "agent service, instead of the config's")
	f.StringSliceVar(&cfg.InstanceRegistrationAddrs, "instance-registration-addrs", nil,
		"registration addresses that instances are given, instead of the leader's and this server's")
	f.StringSliceVar(&cfg.InstanceAgentAddrs, "instance-agent-addrs", nil, "the same for the agent service")
	f.BoolVar(&validate, "validate", false, "check the shard's config, or FILE, and exit 0 or 1")
	f.DurationVar(&cfg.Times.ClientCertificate, "client-certificate-life", server.DefaultTimes().ClientCertificate,
		"life of the certificates of agents, and up to 90 days of operators, which renew at two thirds of it")
	f.BoolVar(&cfg.Debug, "debug", false, "log more, and offer gRPC reflection")
	return cmd
}

func level(debug bool) slog.Level {
	if debug {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
