// Package spot learns from a cloud's metadata service that the provider is going
// to take the machine.
//
// Machines that are lent cheaply are taken back with little warning: two minutes
// on AWS, half a minute on Google Cloud. The warning appears in the metadata
// service, a web server at a link-local address that each machine sees its own
// version of. Watch finds out where it runs, and whether the machine can be
// taken back at all; only then it polls.
//
// What the metadata service says is outside input: its answers are bounded, and
// anything but a well-formed notice is no notice. A missed notice costs the
// warning, a false one costs a healthy machine. Trouble never ends the watch,
// and is logged seldom. Requests never go through a proxy and follow no
// redirects: what comes from elsewhere is not about this machine.
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

// Config is what Watch needs.
type Config struct {
	// Provider says where the machine runs: aws or gcp; auto finds out. Anything
	// else has no notices.
	Provider string
	Interval time.Duration // between two looks for a notice
	// AWSEndpoint is the URL of the EC2 metadata service, and GCPHost the host, with
	// a port or without, of Google's; empty: the address that the cloud gives it.
	AWSEndpoint, GCPHost string
	// Dialer makes the connections; nil: TCP.
	Dialer  func(ctx context.Context, addr string) (net.Conn, error)
	Now     func() time.Time
	Logger  *slog.Logger
	Noticed func(fleet.Notice) // is told of a notice, and again when its time becomes known
}

// The times of the watch.
const (
	// searchFor is how long auto looks for a metadata service. Networks come up
	// late, but a machine that has none for this long is in no cloud.
	searchFor = 5 * time.Minute
	searchMin = time.Second
	searchMax = time.Minute
	warnEvery = 10 * time.Minute // between two warnings about the metadata service
)

// errNotHere means that the answer is not of the metadata service asked for.
var errNotHere = errors.New("not the metadata service of this cloud")

// cloud is one provider's metadata service. Its methods are called one at a time.
type cloud interface {
	name() string
	// reclaimable reports whether the machine can be taken back at short notice.
	// An error means that this is not known.
	reclaimable(ctx context.Context) (bool, error)
	// notice returns the announcement of the end, if there is one.
	notice(ctx context.Context) (n fleet.Notice, announced bool, err error)
}

// Watch tells c.Noticed of the end of this machine, and returns when there is
// nothing more to be learned: it runs in no cloud, it can't be taken back, the
// time of its end is known, or ctx ended.
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

// find returns the cloud that may take this machine back; nil when none will.
// A cloud that was named is asked until it answers.
func (w *watch) find(ctx context.Context, clouds []cloud) cloud {
	began := w.Now()
	backoff := retry.Backoff{First: searchMin, Limit: searchMax}
	for n := 1; len(clouds) > 0; n++ {
		for _, c := range clouds {
			reclaimable, err := c.reclaimable(ctx)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil && w.Provider == "auto": // there may be none to find
			case err != nil:
				w.warn(ctx, c, err)
			case !reclaimable:
				w.Logger.LogAttrs(ctx, slog.LevelDebug, "this machine is not one that the provider takes back", slog.String("provider", c.name()))
				return nil
			default:
				w.Logger.LogAttrs(ctx, slog.LevelInfo, "the provider may take this machine back: watching for the notice",
					slog.String("provider", c.name()), slog.Duration("interval", w.Interval))
				return c
			}
		}
		if w.Provider == "auto" && w.Now().Sub(began) >= searchFor {
			w.Logger.LogAttrs(ctx, slog.LevelDebug, "found no metadata service: nobody announces the end of this machine")
			return nil
		}
		if retry.Wait(ctx, backoff.Delay(n)) != nil {
			return nil
		}
	}
	return nil
}

// poll looks for a notice until it knows all of it.
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

// warn logs an error of the metadata service, but not every two seconds.
func (w *watch) warn(ctx context.Context, c cloud, err error) {
	now := w.Now()
	if since := now.Sub(w.warned); !w.warned.IsZero() && since >= 0 && since < warnEvery {
		return
	}
	w.warned = now
	w.Logger.LogAttrs(ctx, slog.LevelWarn, "can't ask the provider's metadata service about the end of this machine: trying on",
		slog.String("provider", c.name()), slog.Any("error", err))
}
