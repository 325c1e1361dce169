package measure

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/metrics/prometheus"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/tracing"
)

// Calls is the metrics of calls to object storage and to the provider, and their spans in traces.
type Calls struct {
	tracer                   *tracing.Tracer
	store, cloud             *prometheus.Histogram
	storeErrors, cloudErrors *prometheus.Tally
	creates, deletes         *prometheus.Tally
}

func newCalls(r *prometheus.Registry, tracer *tracing.Tracer) *Calls {
	return &Calls{
		tracer: tracer,
		store: r.Histogram("nstance_store_call_duration_seconds",
			"Calls to object storage; area is the first part of the key. The leader renews its lease by a put in the area leader.",
			[]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}, "call", "area"),
		storeErrors: r.Tally("nstance_store_errors_total",
			"Calls to object storage that failed, by kind of error. An object that does not exist is none.", "call", "area", "kind"),
		cloud: r.Histogram("nstance_provider_call_duration_seconds", "Calls to the provider.",
			[]float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}, "call"),
		cloudErrors: r.Tally("nstance_provider_errors_total",
			"Calls to the provider that failed, for any of the machines in it, by kind of error. A machine that does not exist is none.",
			"call", "kind"),
		creates: r.Tally("nstance_creates_total", "Calls that create a machine, by outcome: made, or the kind of error.", "outcome"),
		deletes: r.Tally("nstance_deletes_total", "Deletions of machines asked for, by outcome: accepted, or the kind of error.", "outcome"),
	}
}

// stored records the end of a call to object storage.
func (c *Calls) stored(ctx context.Context, verb object.Verb, key string, began time.Time, err error) {
	area, now := areaOf(key), time.Now()
	c.store.Observe(now.Sub(began), string(verb), area)
	kind := storeError(ctx, err)
	if kind != "" {
		c.storeErrors.Add(1, string(verb), area, kind)
	} else {
		err = nil
	}
	if c.tracer != nil {
		c.tracer.Past(ctx, tracing.Client, "store "+string(verb)+" "+area, began, now, err, slog.String("nstance.key", key))
	}
}

// called records the end of a call to the provider.
func (c *Calls) called(ctx context.Context, call string, began time.Time, kind string) {
	now := time.Now()
	c.cloud.Observe(now.Sub(began), call)
	var err error
	if kind != "" {
		c.cloudErrors.Add(1, call, kind)
		err = errors.New(kind)
	}
	if c.tracer != nil {
		c.tracer.Past(ctx, tracing.Client, "provider "+call, began, now, err)
	}
}

// storeError returns the kind of an error of object storage; empty if it is none.
func storeError(ctx context.Context, err error) string {
	switch {
	case err == nil, errors.Is(err, object.ErrNotFound):
		return ""
	case errors.Is(ctx.Err(), context.Canceled):
		return "canceled"
	case errors.Is(err, object.ErrConflict):
		return "conflict"
	case errors.Is(err, object.ErrUnfit):
		return "unfit"
	case errors.Is(err, object.ErrRefused):
		return "refused"
	case ctx.Err() != nil:
		return "timeout"
	default:
		return "unknown"
	}
}

// cloudError returns the kind of an error of the provider; empty if it is none.
func cloudError(ctx context.Context, err error) string {
	if err == nil || errors.Is(err, provider.ErrNotFound) {
		return ""
	}
	for _, k := range []struct {
		err  error
		name string
	}{
		{provider.ErrThrottled, "throttled"}, {provider.ErrQuota, "quota"}, {provider.ErrSubnetFull, "subnet_full"},
		{provider.ErrInvalid, "invalid"}, {provider.ErrUnauthorized, "unauthorized"}, {provider.ErrUnsupported, "unsupported"},
		{provider.ErrUsed, "used"}, {provider.ErrSpent, "spent"},
	} {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return "canceled"
	case ctx.Err() != nil:
		return "timeout"
	default:
		return "unknown"
	}
}
