// Command dev runs the development stack on this machine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/nstance/nstance/pkg/dev/stack"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "dev:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var f stack.Flags
	root := &cobra.Command{
		Use:           "dev",
		Short:         "Run the development stack on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&f.Bin, "bin", "bin", "folder of the binaries")
	root.PersistentFlags().StringVar(&f.Examples, "examples", "examples/dev", "folder of the shards' configs")
	root.PersistentFlags().StringVar(&f.Temp, "temp", "temp", "folder of all state and logs")
	root.PersistentFlags().StringVar(&f.Provider, "provider", os.Getenv("DEV_PROVIDER"),
		"docker or process; default: docker where an engine answers (DEV_PROVIDER)")
	root.PersistentFlags().DurationVar(&f.Life, "client-certificate-life", 0,
		"life of agents' certificates, to see them renew (0: the server's default)")
	root.PersistentFlags().StringVar(&f.Kubeconfig, "kubeconfig", "",
		"an API server that is to have a Node for each instance (empty: none)")
	root.PersistentFlags().BoolVar(&f.Kubernetes, "kubernetes", false,
		"run nstance-operator too, with an API server and Cluster API unless --kubeconfig names a cluster")
	root.PersistentFlags().StringVar(&f.Repository, "repository", ".", "folder of the repository, for the control plane and the manifests")
	root.PersistentFlags().StringVar(&f.Plane, "plane", "",
		"folder of a control plane that is built already, with dev-k8s among the binaries (default: the repository's is built)")
	root.PersistentFlags().StringVar(&f.Watch, "watch", "",
		"a shell command that builds the binaries, run in the repository when a file there changes; what changed is started again")
	root.PersistentFlags().BoolVar(&f.Standby, "standby", os.Getenv("DEV_STANDBY") == "1", "add a hot standby to dev-1 (DEV_STANDBY=1)")

	sub := func(use, short string, args cobra.PositionalArgs, run func(ctx context.Context, args []string) error) {
		root.AddCommand(&cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
			return run(cmd.Context(), args)
		}})
	}
	sub("run", "start everything and stay; Ctrl-C stops all of it", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		return f.Run(ctx, os.Stdout)
	})
	up := func(ctx context.Context, _ []string) error { return f.Up(ctx, os.Stdout) }
	sub("up", "start everything in the background and wait until all groups are at size", cobra.NoArgs, up)
	sub("down", "stop everything, leaving nothing behind", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		return f.Down(ctx)
	})
	sub("status", "say what runs", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		return f.Status(ctx, os.Stdout)
	})
	sub("start NAME", "start a component that was stopped", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		return stack.NewClient(f.Temp).Start(ctx, args[0])
	})
	sub("stop NAME", "stop a component until start", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		return stack.NewClient(f.Temp).Stop(ctx, args[0], false)
	})
	sub("kill NAME", "stop a component with SIGKILL until start", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		return stack.NewClient(f.Temp).Stop(ctx, args[0], true)
	})
	foreground := func(ctx context.Context, args []string) error { return f.Foreground(ctx, args[0], os.Stdout) }
	sub("foreground NAME", "run a component here, in the place of the running stack's, until Ctrl-C", cobra.ExactArgs(1), foreground)
	sub("guard", "clean up after a supervisor that died (started by it)", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		// Signals must not end the guard: it goes when the supervisor goes.
		return f.Guard(context.WithoutCancel(ctx), os.Stdin)
	})
	return root
}
