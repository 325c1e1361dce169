package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// reloadOnHangup has the process become, at each SIGHUP, the program that now lies where
// this one came from. Process, environment and folder stay, and nothing is told to the
// server: to it that is a connection that broke, and its instance lives on. What is on
// disk is as fit for that as for a crash. A program that can't be run leaves this one.
func reloadOnHangup(ctx context.Context, log *slog.Logger) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGHUP)
	go func() {
		for range asked {
			log.LogAttrs(ctx, slog.LevelInfo, "asked to become the program that is installed now")
			log.LogAttrs(ctx, slog.LevelError, "it can't be run", slog.Any("error", become()))
		}
	}()
}

// become returns only if that fails.
func become() error {
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return err
	}
	if err := syscall.Exec(path, os.Args, os.Environ()); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}
