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
	flags(root, &f)
	sub := func(use, short string, args cobra.PositionalArgs, run func(ctx context.Context, args []string) error) {
		root.AddCommand(&cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
			return run(cmd.Context(), args)
		}})
	}
	sub("run", "start everything in the foreground; Ctrl-C stops it", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		return f.Run(ctx, os.Stdout)
	})
	up := func(ctx context.Context, _ []string) error { return f.Up(ctx, os.Stdout) }
	sub("up", "start everything in the background and wait until all groups are at size", cobra.NoArgs, up)
	sub("down", "stop everything and clean up", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		return f.Down(ctx)
	})
	sub("status", "show what is running", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		return f.Status(ctx, os.Stdout)
	})
	sub("start NAME", "start a stopped component", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		return stack.NewClient(f.Temp).Start(ctx, args[0])
	})
	sub("stop NAME", "stop a component until it is started again", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		return stack.NewClient(f.Temp).Stop(ctx, args[0], false)
	})
	sub("kill NAME", "stop a component with SIGKILL", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		return stack.NewClient(f.Temp).Stop(ctx, args[0], true)
	})
	foreground := func(ctx context.Context, args []string) error { return f.Foreground(ctx, args[0], os.Stdout) }
	sub("foreground NAME", "run a component of the running stack in the foreground, until Ctrl-C", cobra.ExactArgs(1), foreground)
	sub("guard", "clean up after a dead supervisor (started by the supervisor)", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		// The guard ignores signals: it exits with the supervisor.
		return f.Guard(context.WithoutCancel(ctx), os.Stdin)
	})
	return root
}

// flags are those of all commands.
func flags(root *cobra.Command, f *stack.Flags) {
	set := root.PersistentFlags()
	set.StringVar(&f.Bin, "bin", "bin", "folder of the binaries")
	set.StringVar(&f.Examples, "examples", "examples/dev", "folder with the shards' configs")
	set.StringVar(&f.Temp, "temp", "temp", "folder for all state and logs")
	set.StringVar(&f.Provider, "provider", os.Getenv("DEV_PROVIDER"),
		"docker or process (DEV_PROVIDER; default: docker if an engine answers)")
	set.DurationVar(&f.Life, "client-certificate-life", 0,
		"lifetime of agent certificates (0: the server's default)")
	set.StringVar(&f.Kubeconfig, "kubeconfig", "",
		"kubeconfig of an API server in which a Node is created for each instance (empty: none)")
	set.BoolVar(&f.Kubernetes, "kubernetes", false,
		"also run nstance-operator, with an API server and Cluster API unless --kubeconfig names a cluster")
	set.StringVar(&f.Repository, "repository", ".", "folder of the repository, for the control plane and the manifests")
	set.StringVar(&f.Plane, "plane", "",
		"folder of a prebuilt control plane, including dev-k8s (default: build the repository's)")
	set.StringVar(&f.Watch, "watch", "",
		"shell command that builds the binaries; run in the repository when a file changes; changed binaries are restarted")
	set.BoolVar(&f.Standby, "standby", os.Getenv("DEV_STANDBY") == "1", "add a hot standby to dev-1 (DEV_STANDBY=1)")
	set.StringVar(&f.PortOffset, "port-offset", os.Getenv("DEV_PORT_OFFSET"),
		"added to all ports, so that several stacks can run on one machine (DEV_PORT_OFFSET)")
}
