// Package spot watches a cloud's metadata service for the notice that the provider is going to
// reclaim the machine.
//
// Spot machines are reclaimed with little warning: two minutes on AWS, half a minute on Google
// Cloud. The notice appears in the metadata service, a web server at a link-local address with
// contents specific to each machine. Watch detects the cloud, and whether the machine can be
// reclaimed at all; only then it polls.
//
// Responses of the metadata service are untrusted: their size is bounded, and anything but a
// well-formed notice is ignored. A missed notice costs the warning, a false one a healthy
// machine. Errors never end the watch, and are logged rarely. Requests use no proxy and follow
// no redirects, since a response from elsewhere is not about this machine.
package spot

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
)

// Config is the input of Watch.
type Config struct {
	// Provider is where the machine runs: aws or gcp; auto detects it. Other providers have no
	// notices.
	Provider string
	Interval time.Duration // between two polls
	// AWSEndpoint is the URL of the EC2 metadata service, and GCPHost the host, with an
	// optional port, of Google's; empty: the cloud's default.
	AWSEndpoint, GCPHost string
	// Dialer opens connections; nil: TCP.
	Dialer  func(ctx context.Context, addr string) (net.Conn, error)
	Now     func() time.Time
	Logger  *slog.Logger
	Noticed func(fleet.Notice) // called with a notice, and again when its time becomes known
}

// Intervals of the watch.
const (
	// searchFor is how long auto looks for a metadata service. A network may come up late, but
	// a machine without a metadata service for this long is not in a cloud.
	searchFor = 5 * time.Minute
	searchMin = time.Second
	searchMax = time.Minute
	warnEvery = 10 * time.Minute // between two warnings about the metadata service
)

// errNotHere means that a response is not from the expected metadata service.
var errNotHere = errors.New("not the metadata service of this cloud")

// cloud is one provider's metadata service. Its methods are called one at a time.
type cloud interface {
	name() string
	// reclaimable reports whether the provider can reclaim the machine at short notice. An
	// error means that this is unknown.
	reclaimable(ctx context.Context) (bool, error)
	// notice returns the termination notice, if there is one.
	notice(ctx context.Context) (n fleet.Notice, announced bool, err error)
}

// Watch calls c.Noticed with the notice for this machine. It returns when there is nothing
// more to learn: the machine is not in a cloud, it can't be reclaimed, the time of its end is
// known, or ctx ended.
func Watch(ctx context.Context, c Config) {
	m := newMetadata(c.Dialer)
	defer m.close()
	w := &watch{Config: c}
	var clouds []cloud
	if c.Provider == "aws" || c.Provider == "auto" {
		clouds = append(clouds, &aws{metadata: m, endpoint: c.AWSEndpoint, now: c.Now})
	}
	if c.Provider == "gcp" || c.Provider == "auto" {
		clouds = append(clouds, &gcp{metadata: m, host: c.GCPHost, now: c.Now})
	}
	if found := w.find(ctx, clouds); found != nil {
		w.poll(ctx, found)
	}
}

type watch struct {
	Config
	warned time.Time
}

// find returns the cloud that may reclaim this machine, or nil. A configured cloud is retried
// until it answers.
func (w *watch) find(ctx context.Context, clouds []cloud) cloud {
	began := w.Now()
	backoff := retry.Backoff{First: searchMin, Limit: searchMax}
	for n := 1; len(clouds) > 0; n++ {
		for _, c := range clouds {
			reclaimable, err := c.reclaimable(ctx)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil && w.Provider == "auto": // this cloud may not exist here
			case err != nil:
				w.warn(ctx, c, err)
			case !reclaimable:
				w.Logger.LogAttrs(ctx, slog.LevelDebug, "the provider does not reclaim this machine", slog.String("provider", c.name()))
				return nil
			default:
				w.Logger.LogAttrs(ctx, slog.LevelInfo, "watching for a termination notice, the provider may reclaim this machine",
					slog.String("provider", c.name()), slog.Duration("interval", w.Interval))
				return c
			}
		}
		if w.Provider == "auto" && w.Now().Sub(began) >= searchFor {
			w.Logger.LogAttrs(ctx, slog.LevelDebug, "found no metadata service, so there are no termination notices")
			return nil
		}
		if retry.Wait(ctx, backoff.Delay(n)) != nil {
			return nil
		}
	}
	return nil
}

// poll polls for a notice until it is complete.
func (w *watch) poll(ctx context.Context, c cloud) {
	var told bool
	for {
		n, announced, err := c.notice(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.warn(ctx, c, err)
		case announced && (!told || !n.At.IsZero()):
			told = true
			w.Logger.LogAttrs(ctx, slog.LevelWarn, "the provider announced the end of this machine",
				slog.String("source", n.Source), slog.String("action", n.Action), slog.Time("at", n.At))
			w.Noticed(n)
			if !n.At.IsZero() {
				return
			}
		}
		if retry.Wait(ctx, w.Interval) != nil {
			return
		}
	}
}

// warn logs an error of the metadata service, at a limited rate.
func (w *watch) warn(ctx context.Context, c cloud, err error) {
	now := w.Now()
	if since := now.Sub(w.warned); !w.warned.IsZero() && since >= 0 && since < warnEvery {
		return
	}
	w.warned = now
	w.Logger.LogAttrs(ctx, slog.LevelWarn, "could not check for a termination notice, retrying",
		slog.String("provider", c.name()), slog.Any("error", err))
}
