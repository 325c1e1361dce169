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

// reloadOnHangup makes the process exec its own executable path at each SIGHUP. The process,
// environment and folder stay. The server is not notified: it sees a broken connection, and the
// instance lives on. The files on disk are as consistent as after a crash. If the exec fails,
// the current program keeps running, without traces. flush exports those that are left.
func reloadOnHangup(ctx context.Context, flush func(), log *slog.Logger) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGHUP)
	go func() {
		for range asked {
			log.LogAttrs(ctx, slog.LevelInfo, "reloading the executable")
			flush()
			log.LogAttrs(ctx, slog.LevelError, "reload failed", slog.Any("error", become()))
		}
	}()
}

// become replaces the process with its executable. It returns only on an error.
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
