// Command dev-k8s is a Kubernetes API server for development that stores its objects as JSON
// files.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/cmd/dev-k8s/plane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "dev-k8s:", err)
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	cfg := plane.Config{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	c := &cobra.Command{
		Use:           "dev-k8s",
		Short:         "A Kubernetes API server for development that stores its objects as JSON files",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return plane.Run(c.Context(), cfg) },
	}
	c.Flags().StringVar(&cfg.Addr, "addr", "127.0.0.1:6443", "address to listen on")
	c.Flags().StringVar(&cfg.Root, "root", "temp/dev-k8s", "folder of the objects")
	c.Flags().StringVar(&cfg.Kubeconfig, "kubeconfig", "temp/operator/kubeconfig", "path of the administrator's kubeconfig to write")
	c.Flags().StringVar(&cfg.Logs, "logs", "temp/logs", "folder of the logs of kube-apiserver and kube-controller-manager")
	c.Flags().StringVar(&cfg.Folder, "plane", "", "folder of the control plane's programs (default: the output of .ci/plane -n)")
	return c
}
