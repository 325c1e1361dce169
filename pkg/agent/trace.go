package agent

import (
	"context"
	"log/slog"
	"sync"

	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/tracing"
)

// registerFirst registers, as a part of the trace of the instance's start.
func (a *agent) registerFirst(ctx context.Context, client *rpc.Client) error {
	ctx, end := a.config.Tracer.Start(a.starting(ctx), tracing.Client, "agent register", a.named())
	err := a.register(ctx, client)
	end(err)
	if err == nil {
		a.registeredAt = a.config.Now()
	}
	return err
}

// observe returns the observer of the streams: the tracker's, and for an agent that has just
// registered that of its first report, with which the instance has started.
func (a *agent) observe(ctx context.Context) func(Event) {
	if a.registeredAt.IsZero() {
		return a.tracker.observe
	}
	from := a.registeredAt
	first := sync.OnceFunc(func() {
		a.config.Tracer.Past(a.starting(ctx), tracing.Client, "agent report", from, a.config.Now(), nil, a.named())
	})
	return func(e Event) {
		a.tracker.observe(e)
		if e.Kind == Reported {
			first()
		}
	}
}

// starting returns a context whose spans belong to the trace of the instance's start.
func (a *agent) starting(ctx context.Context) context.Context {
	return a.config.Tracer.OfInstance(ctx, string(a.config.InstanceID))
}

func (a *agent) named() slog.Attr {
	return slog.String(tracing.AttrInstance, string(a.config.InstanceID))
}
