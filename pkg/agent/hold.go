package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/tracing"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	// lastReportWait bounds how long a stopping agent waits for the server to receive its last
	// report.
	lastReportWait = 2 * time.Second
)

// HoldConfig is the input of Hold. It holds all that differs between registered agents, so
// that thousands can run in one process.
type HoldConfig struct {
	Client         *rpc.Client // of the agent service; not closed by Hold
	ReportInterval time.Duration
	// Run tells apart agents with the same identity (rpc.WithRun); empty: the server uses
	// addresses alone.
	Run string
	// Fill completes a report: version, resources and so on. Sequence, uptime, sent_at,
	// shutting_down and report_interval are already set.
	Fill      func(context.Context, *nstancev1.ReportHealthRequest)
	Files     Files           // nil: received files are ignored, and none reported
	Keys      Keys            // nil: key requests are ignored
	Expired   func() bool     // reports whether the certificate has expired; nil: never
	ReportNow <-chan struct{} // requests a report at once; nil: never
	Random    func() float64  // returns numbers in [0, 1)
	Now       func() time.Time
	Logger    *slog.Logger
	Tracer    *tracing.Tracer // nil: no traces
	Observe   func(Event)     // called by several goroutines, must not block; optional
}

// Event is one event passed to HoldConfig.Observe.
type Event struct {
	Kind     EventKind
	Stream   string // of StreamOpened, StreamClosed and StreamUnserved
	Server   string // the address
	Sequence uint64 // of Reported
	// Report is the report sent, of Reported. It must not be modified.
	Report *nstancev1.ReportHealthRequest
	Err    error // of StreamClosed and Disconnected
}

// EventKind is the kind of an event.
type EventKind int

// The kinds of events.
const (
	StreamOpened EventKind = iota
	StreamClosed
	StreamUnserved // the server does not offer this stream; not retried on this connection
	Reported
	Disconnected
)

// Names of the streams in events.
const (
	StreamHealth = "ReportHealth"
	StreamKeys   = "KeyGenRequests"
	StreamFiles  = "ReceiveFiles"
)

// Hold keeps an agent's three streams open until ctx ends, reconnecting with jitter to the
// current leader. The report stream is the heartbeat: when it breaks, all streams are closed
// and reopened. When ctx ends, a last report says that the agent is shutting down, and Hold
// returns once the server has received it, or after two seconds.
func Hold(ctx context.Context, c HoldConfig) {
	h := &holder{HoldConfig: c, started: c.Now(), filesChanged: newTrigger()}
	for failures, hops := 0, 0; ctx.Err() == nil; {
		began := c.Now()
		followed, err := h.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		h.observe(Event{Kind: Disconnected, Err: err})
		if followed && hops < rpc.MaxHops {
			hops++
			continue
		}
		hops = 0
		if c.Now().Sub(began) >= rpc.SteadyAfter {
			failures = 0
		}
		failures++
		h.pause(ctx, failures, err)
	}
}

type holder struct {
	HoldConfig
	started      time.Time
	sequence     uint64
	filesChanged trigger                           // the files in a report have changed
	failed       atomic.Pointer[map[string]string] // errors of the last commit, by file; nil: none
}

func (h *holder) observe(e Event) {
	if h.Observe != nil {
		h.Observe(e)
	}
}

// pause waits before the next connection, at most for the report interval: the server counts
// missing reports, and a longer wait would make a healthy machine look dead.
func (h *holder) pause(ctx context.Context, failures int, err error) {
	backoff := rpc.Backoff()
	backoff.Limit = min(backoff.Limit, h.ReportInterval)
	wait := backoff.Draw(failures, h.Random)
	level := slog.LevelWarn
	if rpc.Revoked(err) || rpc.Shared(err) || h.Expired != nil && h.Expired() {
		wait += min(rpc.RefusedWait, h.ReportInterval)
		level = slog.LevelError
	}
	h.Logger.LogAttrs(ctx, level, "lost the server", slog.Any("error", err), slog.Duration("retry_in", wait))
	// The caller checks ctx itself.
	_ = retry.Wait(ctx, wait)
}

// connect holds the streams on the current connection until the report stream ends, and
// reports whether the next attempt needs no back-off.
func (h *holder) connect(ctx context.Context) (followed bool, err error) {
	target, err := h.Client.Target()
	if err != nil {
		return false, err
	}
	// After a certificate renewal, existing streams stay on the old connection; new calls use
	// the new one.
	defer h.Client.Release(target)
	service := nstancev1.NewAgentServiceClient(h.Client.Latest(target))
	// The streams outlive ctx until the last report is sent.
	streams, cancel := context.WithCancelCause(rpc.WithRun(context.WithoutCancel(ctx), h.Run))
	defer cancel(nil)
	var beside sync.WaitGroup
	beside.Go(func() { h.side(streams, cancel, StreamKeys, target.Addr, h.readKeyRequests(service)) })
	beside.Go(func() { h.side(streams, cancel, StreamFiles, target.Addr, h.readFiles(service)) })
	err = h.report(ctx, streams, service, target.Addr)
	if cause := context.Cause(streams); cause != nil {
		err = cause
	}
	cancel(nil)
	beside.Wait()
	err = target.Explain(err)
	return h.Client.Failed(target, err), err
}

// side keeps a stream other than the report stream open: it reads the stream until it ends,
// and reopens it after a back-off, until ctx ends. An error of one stream does not end the
// heartbeat, unless it says that the leader is elsewhere. A stream that the server does not
// offer is not reopened.
func (h *holder) side(
	ctx context.Context, cut context.CancelCauseFunc, name, server string, read func(ctx context.Context, opened func()) error,
) {
	for failures := 1; ; failures++ {
		began := h.Now()
		err := read(ctx, func() { h.observe(Event{Kind: StreamOpened, Stream: name, Server: server}) })
		if ctx.Err() != nil {
			return
		}
		if _, notLeader := rpc.NotLeader(err); notLeader {
			cut(err)
			return
		}
		if status.Code(err) == codes.Unimplemented {
			h.observe(Event{Kind: StreamUnserved, Stream: name, Server: server})
			return
		}
		h.observe(Event{Kind: StreamClosed, Stream: name, Server: server, Err: err})
		if h.Now().Sub(began) >= rpc.SteadyAfter {
			failures = 1
		}
		if retry.Wait(ctx, rpc.Backoff().Draw(failures, h.Random)) != nil {
			return
		}
	}
}

var errServerEnded = errors.New("the server ended the stream")
