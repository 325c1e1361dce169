// Package signals has the signals that the services share: what stops one, and what must not.
package signals

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Stop returns a context that ends with SIGTERM, SIGINT or SIGHUP, so that the service ends in good
// order. If SIGINT or SIGHUP was ignored when the process began, it stays ignored: nohup asks for
// that.
func Stop(ctx context.Context) (context.Context, context.CancelFunc) {
	return notify(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

// StopButHangup is Stop for a service to which SIGHUP means something else.
func StopButHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	return notify(ctx, os.Interrupt, syscall.SIGTERM)
}

func notify(ctx context.Context, stopping ...os.Signal) (context.Context, context.CancelFunc) {
	var heeded []os.Signal
	for _, s := range stopping {
		if !signal.Ignored(s) {
			heeded = append(heeded, s)
		}
	}
	return signal.NotifyContext(ctx, heeded...)
}

// OutliveReaders makes the process outlive the reader of its log: a write to a pipe that nothing
// reads any more fails, and does not end the process. Programs that it starts are not affected, as
// they would be if the signal were ignored.
func OutliveReaders() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // it is never read: what does not fit is dropped
}
