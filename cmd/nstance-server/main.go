// Command nstance-server runs one shard.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/nstance/nstance/pkg/garbage"
	"github.com/nstance/nstance/pkg/logs"
	"github.com/nstance/nstance/pkg/server"
	"github.com/nstance/nstance/pkg/signals"
	"github.com/nstance/nstance/pkg/tracing"
	"github.com/nstance/nstance/pkg/tracing/otlp"
	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

func main() {
	signals.OutliveReaders()
	ctx, stop := signals.Stop(context.Background())
	go garbage.Govern(ctx)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	started := false
	cmd := command(func() { started = true }) //nolint:contextcheck // it gets its own when it runs
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	switch err := cmd.ExecuteContext(ctx); {
	case err == nil:
		return 0
	case started:
		fmt.Fprintln(errOut, "nstance-server:", err)
		return exitFailed
	default:
		fmt.Fprintln(errOut, "nstance-server:", err)
		return exitUsage
	}
}

// command returns the command; it calls started once its flags and arguments are valid.
func command(started func()) *cobra.Command {
	host, _ := os.Hostname()
	cfg := server.Config{Version: version, Getenv: os.Getenv, Now: time.Now, Random: rand.Reader}
	var validate bool
	var format string
	cmd := &cobra.Command{
		Use:           "nstance-server",
		Short:         "Run one shard of an Nstance cluster",
		Version:       version,
		Args:          cobra.MaximumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := logTo(&cfg, format, cmd.ErrOrStderr()); err != nil {
				return err
			}
			if validate {
				started()
				return server.Validate(cmd.Context(), cfg, args, cmd.OutOrStdout())
			}
			if len(args) > 0 {
				return fmt.Errorf("unexpected argument %q: only --validate takes a FILE", args[0])
			}
			if err := cfg.Validate(); err != nil {
				return err
			}
			return serve(cmd.Context(), cfg, started)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Shard, "shard", os.Getenv("NSTANCE_SHARD"), "ID of the shard (NSTANCE_SHARD)")
	f.StringVar(&cfg.ID, "id", host, "name of this server")
	f.StringVar(&cfg.StorageProvider, "storage-provider", cmp.Or(os.Getenv("NSTANCE_STORAGE_PROVIDER"), "s3"),
		"s3 or dir (NSTANCE_STORAGE_PROVIDER)")
	f.StringVar(&cfg.StorageBucket, "storage-bucket", os.Getenv("NSTANCE_STORAGE_BUCKET"),
		"bucket name; a directory with provider dir (NSTANCE_STORAGE_BUCKET)")
	f.BoolVar(&cfg.InsecureStorage, "insecure-storage", false,
		"allow plain HTTP to remote object storage and AWS endpoints (NSTANCE_INSECURE_STORAGE)")
	f.StringVar(&cfg.CacheDir, "cache-dir", "cache", "cache folder; may be deleted at any time")
	f.StringVar(&cfg.AdvertiseHost, "advertise-host", "", "address at which this server is reachable (default: the primary interface's)")
	f.StringVar(&cfg.Self, "self", "",
		"this machine's provider ID, for the leader address (default: detected)")
	f.StringVar(&cfg.Bind.Health, "health-addr", "",
		"listen address of the health endpoint, overriding the config's (default before the config is read: "+server.DefaultHealthAddr+")")
	f.StringVar(&cfg.Bind.Election, "election-addr", "", "listen address of the peer endpoint, overriding the config's")
	f.StringVar(&cfg.Bind.Registration, "registration-addr", "", "listen address of the registration service, overriding the config's")
	f.StringVar(&cfg.Bind.Operator, "operator-addr", "", "listen address of the operator service, overriding the config's")
	f.StringVar(&cfg.Bind.Agent, "agent-addr", "", "listen address of the agent service, overriding the config's")
	f.StringVar(&cfg.Bind.Metrics, "metrics-addr", "",
		"listen address of the metrics, overriding the config's; served from the start (default: that of the config, once it is read)")
	f.StringSliceVar(&cfg.InstanceRegistrationAddrs, "instance-registration-addrs", nil,
		"registration addresses given to instances (default: the leader's and this server's)")
	f.StringSliceVar(&cfg.InstanceAgentAddrs, "instance-agent-addrs", nil, "the same for the agent service")
	f.BoolVar(&validate, "validate", false, "validate the shard's config, or FILE, and exit 0 or 1")
	f.DurationVar(&cfg.Times.ClientCertificate, "client-certificate-life", server.DefaultTimes().ClientCertificate,
		"lifetime of agent certificates and, up to 90 days, operator certificates; they are renewed at two thirds of it")
	f.StringVar(&format, "log-format", cmp.Or(os.Getenv("NSTANCE_LOG_FORMAT"), logs.Text),
		"format of the log: text or json (NSTANCE_LOG_FORMAT)")
	f.BoolVar(&cfg.Debug, "debug", false, "log at debug level, enable gRPC reflection, and serve profiles beside the metrics")
	return cmd
}

// serve runs the server, with traces if the environment asks for them.
func serve(ctx context.Context, cfg server.Config, started func()) error {
	tracer, flush, err := otlp.Open(ctx, otlp.Config{
		Service: "nstance-server", Version: version,
		Attributes: map[string]string{"service.instance.id": cfg.ID, tracing.AttrShard: cfg.Shard},
		Getenv:     cfg.Getenv, Now: cfg.Now, Logger: cfg.Logger,
	})
	if err != nil {
		return err
	}
	defer flush()
	cfg.Tracer = tracer
	started()
	return server.Run(ctx, cfg)
}

// logTo has the server log in a format.
func logTo(cfg *server.Config, format string, w io.Writer) (err error) {
	level := slog.LevelInfo
	if cfg.Debug {
		level = slog.LevelDebug
	}
	if cfg.Logger, err = logs.New(format, w, level); err != nil {
		return fmt.Errorf("--log-format: %w", err)
	}
	return nil
}
