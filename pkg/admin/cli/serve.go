package cli

import (
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin/httpapi"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/logs"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	bind, tokens, readOnlyTokens, logFormat string
	hosts                                   []string
	request                                 time.Duration
	tls                                     httpapi.TLS
}

func serveCommand(a *app) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve the HTTP API", Args: cobra.NoArgs, Annotations: map[string]string{endless: "yes"},
		Long: "Serve the HTTP API, which does what these commands do, until interrupted. The API acts with the identity of --identity-dir.\n\n" +
			"Without --token-file or --client-ca, it can only be served to this machine.",
	}
	flags := cmd.Flags()
	flags.StringVar(&f.bind, "bind", a.preset("BIND", "127.0.0.1:8080"), "`host:port` to listen at")
	flags.StringSliceVar(&f.hosts, "host", nil, "other `names` by which the API is called, as in a proxy's URL")
	flags.StringVar(&f.tokens, "token-file", a.preset("TOKEN_FILE", ""),
		"`file` of mode 0600 with the tokens that may change something, one a line")
	flags.StringVar(&f.readOnlyTokens, "read-only-token-file", a.preset("READ_ONLY_TOKEN_FILE", ""),
		"`file` of mode 0600 with the tokens that may only read, one a line")
	flags.StringVar(&f.tls.Cert, "tls-cert", a.preset("TLS_CERT", ""), "`file` of the certificate, PEM, to serve with TLS")
	flags.StringVar(&f.tls.Key, "tls-key", a.preset("TLS_KEY", ""), "`file` of mode 0600 with the key of --tls-cert, PEM")
	flags.StringVar(&f.tls.ClientCA, "client-ca", a.preset("CLIENT_CA", ""), "`file` of CAs, PEM: clients need a certificate of one of them")
	flags.TextVar((*config.Duration)(&f.request), "request-timeout", config.Duration(30*time.Second), "timeout of each request, a `duration`")
	flags.StringVar(&f.logFormat, "log-format", a.preset("LOG_FORMAT", logs.Text), "`format` of the log: text or json")
	a.shardFlags(cmd)
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error { return serve(a, cmd, f) })
}

func serve(a *app, cmd *cobra.Command, f serveFlags) error {
	if f.request <= 0 {
		return usagef("--request-timeout: %s is not valid: want a duration above 0, such as 30s", f.request)
	}
	logger, err := logs.New(f.logFormat, a.env.Stderr, slog.LevelInfo)
	if err != nil {
		return usagef("--log-format: %w", err)
	}
	access, err := f.access()
	if err != nil {
		return err
	}
	if err := httpapi.Check(f.bind, access, f.tls); err != nil {
		return usageError{err}
	}
	service, shards, err := a.connect(a.target.read)
	if err != nil {
		return err
	}
	boot := make([]byte, 8)
	if _, err := io.ReadFull(a.env.Random, boot); err != nil {
		return fmt.Errorf("choose the ids of events: %w", err)
	}
	api, err := httpapi.New(httpapi.Config{
		Service: service, Shards: shards, Version: a.env.Version, Hosts: append(httpapi.Hosts(f.bind), f.hosts...), Access: access,
		Timeout: f.request, Boot: hex.EncodeToString(boot), Now: a.env.Now, Logger: logger,
	})
	if err != nil {
		return err
	}
	l, err := httpapi.Listen(cmd.Context(), f.bind, f.tls)
	if err != nil {
		return err
	}
	if f.tls.Cert == "" && !httpapi.Loopback(f.bind) {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: tokens cross the network in the clear: add --tls-cert and --tls-key, or a proxy with TLS")
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "serving %s at %s\n", shardNames(shards), l.URL())
	return api.Serve(cmd.Context(), l)
}

// access opens the files of tokens.
func (f serveFlags) access() (access httpapi.Access, err error) {
	if f.tokens != "" {
		if access.Full, err = httpapi.OpenTokens(f.tokens); err != nil {
			return access, usagef("--token-file: %w", err)
		}
	}
	if f.readOnlyTokens != "" {
		if access.ReadOnly, err = httpapi.OpenTokens(f.readOnlyTokens); err != nil {
			return access, usagef("--read-only-token-file: %w", err)
		}
	}
	return access, nil
}

func shardNames(shards []client.Shard) string {
	if len(shards) == 1 {
		return "shard " + shards[0].ID
	}
	var names []string
	for _, s := range shards {
		names = append(names, s.ID)
	}
	return "shards " + strings.Join(names, ", ")
}
