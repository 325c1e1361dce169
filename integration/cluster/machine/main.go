//go:build linux

// Command machine is the first process of the cluster image, which makes a container a machine of a
// Kubernetes cluster, for tests.
//
//	machine server   a whole cluster on one machine: etcd, API server, controllers,
//	                 scheduler, and a node. It is compatible with testcontainers' k3s
//	                 module: kubeconfig, manifests folder and log line. It is not k3s
//	machine node     a virtual machine that has not joined a cluster yet: a container
//	                 runtime, a folder for the kubelet's settings, and the script that
//	                 is the machine's user data
//	machine pause    holds a pod's namespaces
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "pause" {
		pause()
		return
	}
	if os.Getpid() == 1 {
		os.Exit(first())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "machine:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("want server, node or pause")
	}
	if err := prepare(); err != nil {
		return fmt.Errorf("prepare the machine: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	m := &machine{ctx: ctx, cancel: cancel}
	defer m.stop()
	var err error
	switch args[0] {
	case "server":
		err = m.server() //nolint:contextcheck // the machine has its own
	case "node":
		err = m.node() //nolint:contextcheck // the machine has its own
	default:
		return fmt.Errorf("%q is not valid: want server, node or pause", args[0])
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// first is process 1: it runs the rest as its child, forwards signals, and reaps orphaned
// processes.
func first() int {
	child := exec.CommandContext(context.Background(), "/proc/self/exe", os.Args[1:]...) // signals end it
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	if err := child.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "machine:", err)
		return 1
	}
	for s := range signals {
		if s != syscall.SIGCHLD {
			_ = child.Process.Signal(s) // it may have ended already
			continue
		}
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
			if pid == child.Process.Pid {
				return status.ExitStatus()
			}
			if pid <= 0 || err != nil {
				break
			}
		}
	}
	return 0
}

// pause waits for its end, and reaps the processes of a pod that share its namespace.
func pause() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
